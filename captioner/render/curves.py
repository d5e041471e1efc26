"""Plots deletion and insertion curves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from captioner.render.save import PLOT_SUFFIXES, check_suffix, save_figure

ATTENDED_COLOUR = "#c2410c"
RANDOM_COLOUR = "#4b5563"


@dataclass(frozen=True)
class CurvePair:
    """Mean curves of attended places and of random ones.

    shares: (S + 1,), of the places, from 0 to 1. curve, random_curve: (S + 1,), mean probabilities.
    band, random_band: (2, S + 1), lower and upper edges; None draws no band.
    """

    shares: npt.NDArray[np.float64]
    curve: npt.NDArray[np.float64]
    band: npt.NDArray[np.float64] | None
    random_curve: npt.NDArray[np.float64]
    random_band: npt.NDArray[np.float64] | None


def save_curves(
    path: str | os.PathLike[str], panels: Sequence[tuple[str, str, CurvePair]], caption: str
) -> None:
    """Draw panels side by side with one scale, and write them to a file.

    panels: the title of each, what happens to a growing share of the places, as in "blurred", and
        the curves. caption: a line below them.
    Raises `UserError` unless the path ends in one of `PLOT_SUFFIXES` and if the file cannot be
    written.
    """
    check_suffix(path, PLOT_SUFFIXES)
    # Imported here: matplotlib takes half a second. Its pyplot would need a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(panels), 4.0), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, doing, curves) in zip(axes, panels, strict=True):
        shares = curves.shares * 100
        for name, colour, style, curve, band in (
            ("attended places", ATTENDED_COLOUR, "-", curves.curve, curves.band),
            ("random places", RANDOM_COLOUR, "--", curves.random_curve, curves.random_band),
        ):
            if band is not None:
                axis.fill_between(shares, *band, color=colour, alpha=0.16, linewidth=0)
            axis.plot(shares, curve, style, color=colour, linewidth=2, label=name)
        axis.set_title(title, loc="left")
        axis.set_xlabel(f"% of the places {doing}")
        axis.set_xlim(0, 100)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, loc="best")
    axes[0].set_ylabel("probability of the word")
    axes[0].set_ylim(bottom=0)
    figure.supxlabel(caption, fontsize=9, color=RANDOM_COLOUR)
    save_figure(path, figure)
