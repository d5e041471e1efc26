"""Plots BLEU against source length, one line a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from captioner.evaluation.translation_lengths import LengthBucket
from captioner.render.curves import check_curves_path, write_figure

LINES = (
    ("#c2410c", "-", "o"),
    ("#1d4ed8", "--", "s"),
    ("#047857", "-.", "^"),
    ("#7c3aed", ":", "D"),
    ("#4b5563", "-", "v"),
    ("#b45309", "--", "P"),
    ("#0e7490", "-.", "X"),
    ("#be185d", ":", "*"),
)
"""Colour, dashes and marker of each line; lines can be told apart without colour."""


def save_length_curves(
    path: str | os.PathLike[str], models: Mapping[str, Sequence[LengthBucket]], caption: str = ""
) -> None:
    """Plot BLEU for each bucket of source lengths, as Bahdanau et al. 2014, figure 2.

    models: buckets by model name, all of the same sentences. caption: a line below the plot.
    Raises `UserError` as `check_curves_path` does and if the file cannot be written, and
    `ValueError` if there are no models, more than `LINES`, or their buckets differ.
    """
    check_curves_path(path)
    if not 1 <= len(models) <= len(LINES):
        raise ValueError(f"there are {len(models)} models to draw, not 1 to {len(LINES)}")
    first = next(iter(models.values()))
    columns = [(bucket.first, bucket.last, bucket.sentences) for bucket in first]
    for buckets in models.values():
        if [(bucket.first, bucket.last, bucket.sentences) for bucket in buckets] != columns:
            raise ValueError("the models were not scored on the same sentences")
    # Imported here: matplotlib takes half a second. Its pyplot would need a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    places = range(len(columns))
    for (name, buckets), (colour, dashes, mark) in zip(models.items(), LINES, strict=False):
        scores = [bucket.bleu for bucket in buckets]
        axis.plot(places, scores, dashes, color=colour, marker=mark, linewidth=2, label=name)
    axis.set_xticks(list(places), [f"{low} to {high}\n({n:,})" for low, high, n in columns])
    axis.set_xlabel("words of the source (sentences)")
    axis.set_ylabel("BLEU")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="best")
    write_figure(figure, path, caption)
