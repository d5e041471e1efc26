"""Plots deletion and insertion curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from captioner.errors import UserError
from captioner.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE_SUFFIXES = (".png", ".pdf", ".svg")
"""File name endings of plots."""

ATTENDED_COLOUR = "#c2410c"
RANDOM_COLOUR = "#4b5563"


@dataclass(frozen=True)
class CurvePanel:
    """One plot: attended cells against random ones.

    title: above the plot. doing: what happens to a growing fraction of the cells, as in "deleted".
    shares: (S + 1,), fractions from 0 to 1. attended, random: (S + 1,), mean probabilities.
    attended_band, random_band: (2, S + 1), lower and upper edges; None draws no band.
    """

    title: str
    doing: str
    shares: npt.ArrayLike
    attended: npt.ArrayLike
    attended_band: npt.ArrayLike | None
    random: npt.ArrayLike
    random_band: npt.ArrayLike | None


def save_curves(
    path: str | os.PathLike[str], panels: Sequence[CurvePanel], caption: str = ""
) -> None:
    """Draw panels side by side with one scale, and write them to a file.

    caption: a line below the panels. Raises `UserError` as `check_curves_path` does and if the file
    cannot be written, and `ValueError` if there are no panels.
    """
    check_curves_path(path)
    if not panels:
        raise ValueError("there must be at least one panel to draw")
    # Imported here: matplotlib takes half a second. Its pyplot would need a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(panels), 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        shares = np.asarray(panel.shares) * 100
        for name, colour, style, curve, band in (
            ("attended places", ATTENDED_COLOUR, "-", panel.attended, panel.attended_band),
            ("random places", RANDOM_COLOUR, "--", panel.random, panel.random_band),
        ):
            if band is not None:
                low, high = np.asarray(band)
                axis.fill_between(shares, low, high, color=colour, alpha=0.16, linewidth=0)
            axis.plot(shares, curve, style, color=colour, linewidth=2, label=name)
        axis.set_title(panel.title, loc="left")
        axis.set_xlabel(f"% of the places {panel.doing}")
        axis.set_xlim(0, 100)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, loc="best")
    axes[0].set_ylabel("probability of the word")
    axes[0].set_ylim(bottom=0)
    write_figure(figure, path, caption)


def write_figure(figure: Figure, path: str | os.PathLike[str], caption: str = "") -> None:
    """Write a figure to a file atomically; `path` ends in one of `CURVE_SUFFIXES`.

    caption: a line below the figure. Raises `UserError` if the file cannot be written.
    """
    if caption:
        figure.supxlabel(caption, fontsize=9, color="#4b5563")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)


def check_curves_path(path: str | os.PathLike[str]) -> None:
    """Raise `UserError` unless the file name ends in one of `CURVE_SUFFIXES`."""
    if Path(path).suffix.lower() not in CURVE_SUFFIXES:
        raise UserError(f"cannot write {path}: its name must end in {', '.join(CURVE_SUFFIXES)}")
