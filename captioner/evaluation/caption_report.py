"""Caption scores as table, JSON, CSV and web page."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image

from captioner.csv_tables import csv_records
from captioner.errors import UserError
from captioner.evaluation.captions import CaptionScores
from captioner.evaluation.hallucination import hallucination_table
from captioner.evaluation.significance import RESAMPLES, Comparison, Interval, too_few_images
from captioner.evaluation.text_table import text_table
from captioner.files import write_text
from captioner.render.score_page import ScoredCaption, score_page, small_jpeg

PAGE_COUNT = 20
"""Captions of a page: so many of the best, and of the worst."""


@dataclass(frozen=True)
class Comparisons:
    """Two systems, by name, compared by each score."""

    first: str
    second: str
    scores: Mapping[str, Comparison]

    def table(self, confidence: float) -> str:
        """One line a score. confidence: the share of the intervals."""
        head = ("", "first", "second", "difference", f"{100 * confidence:g} %", "p bootstrap")
        rows = [(name, *vars(each).values()) for name, each in self.scores.items()]
        return f"first: {self.first}\nsecond: {self.second}\n{text_table([head, *rows])}"


@dataclass(frozen=True)
class ScoreReport:
    """The scores of I captions; None for those not asked for.

    diversity, hallucination: as from `text_diversity` and `chair`.
    intervals: of the scores, by name. confidence: the share of the intervals.
    exact: the share of captions that equal a reference.
    names: (I,) captions of the photos on the page.
    open_photo: loads the photo of image number i; None without photos.
    """

    scores: CaptionScores
    diversity: dict[str, float | None]
    hallucination: dict[str, Any] | None = None
    intervals: Mapping[str, Interval] | None = None
    comparison: Comparisons | None = None
    confidence: float | None = None
    names: tuple[str, ...] = ()
    open_photo: Callable[[int], Image.Image] | None = None
    exact: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The scores as `CaptionScores.as_dict`, and `diversity`; then what was asked for."""
        found = {**self.scores.as_dict(), "diversity": self.diversity}
        if self.exact is not None:
            found["exact match"] = self.exact
        if self.hallucination is not None:
            found["hallucination"] = self.hallucination
        if self.intervals is not None:
            found["intervals"] = dict(self.intervals)
        if self.comparison is not None:
            found["comparison"] = asdict(self.comparison)
        if self.confidence is not None:
            found["confidence"] = self.confidence
            found["too_few_images"] = too_few_images(self.scores.images) is not None
        return found

    def table(self) -> str:
        """All scores as lines of text."""
        few = too_few_images(self.scores.images)
        note = "" if few is None else f"\nNOTE: {few}"
        rows = self.scores.rows(self.intervals or {})
        if self.exact is not None:
            rows.append(("exact match", self.exact))
        if self.intervals is not None:
            what = f"confidence, {RESAMPLES:,} bootstrap resamples of the images"
            rows.append(("in brackets", self.confidence, what))
        parts = [text_table(rows) + (note if self.intervals is not None else "")]
        diversity = [(name.replace("_", " "), each) for name, each in self.diversity.items()]
        parts.append(text_table(diversity))
        if self.hallucination is not None:
            parts.append(hallucination_table(self.hallucination))
        if self.comparison is not None and self.confidence is not None:
            parts.append(self.comparison.table(self.confidence) + note)
        return "\n\n".join(parts)

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a row an image: `image_id`, `caption` and its scores.

        Raises `UserError` when the file cannot be written.
        """
        rows = self.scores.per_image()
        write_text(path, csv_records(rows))

    def write_page(self, path: str | os.PathLike[str]) -> list[str]:
        """Write a web page of the `PAGE_COUNT` best and the `PAGE_COUNT` worst captions.

        Of fewer than twice as many, the better half and the worse half; no caption is in both.
        CIDEr-D ranks them, else ROUGE-L, else the first score; captions with the same score stay in
        order, and one without that score is left out.

        Returns a sentence for each photo that could not be read; the page says so in its place.
        Raises `UserError` when the file cannot be written.
        """
        columns = self.scores.per_image_by_name()
        by = next(name for name in ("CIDEr-D", "ROUGE-L", *columns) if name in columns)
        order = np.argsort(-columns[by], kind="stable")  # NaN last
        order = order[: np.count_nonzero(~np.isnan(columns[by]))].tolist()
        half = len(order) // 2
        best = order[: min(PAGE_COUNT, half)]
        worst = order[max(half, len(order) - PAGE_COUNT) :][::-1]
        problems: list[str] = []
        shown = [[self._shown(index, problems) for index in part] for part in (best, worst)]
        write_text(path, score_page(shown[0], shown[1], by, len(order)))
        return problems

    def _shown(self, index: int, problems: list[str]) -> ScoredCaption:
        """One caption of the page; adds an unreadable photo to the problems."""
        texts = self.scores.texts
        jpeg, without = None, ""
        if self.open_photo is not None:
            try:
                jpeg = small_jpeg(self.open_photo(index))
            except UserError as error:
                problems.append(str(error))
                without = "the photo could not be read"
        return ScoredCaption(
            name=self.names[index] if self.names else str(texts.images[index]),
            caption=texts.captions[index],
            references=texts.references[index],
            scores={
                name: float(column[index])
                for name, column in self.scores.per_image_by_name().items()
                if not np.isnan(column[index])
            },
            jpeg=jpeg,
            without_photo=without,
        )
