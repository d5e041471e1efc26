"""The scores of captions by one metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from captioner.evaluation.corpus import FloatArray, IntArray


@dataclass(frozen=True)
class Metric:
    """The M scores of I captions; those of all together depend on a sum over the images only.

    per_image: (I,), or (I, M): each image's own first score, or scores; NaN where it has none.
    terms: (I, C), what each image adds to the sum; (I, 0) for scores that cannot be resampled.
    of_totals: sums (..., C) over I images -> scores (..., M).
    """

    names: tuple[str, ...]
    per_image: FloatArray
    terms: IntArray | FloatArray
    of_totals: Callable[[FloatArray], FloatArray]

    @classmethod
    def mean(cls, name: str, per_image: FloatArray) -> Metric:
        """A score that is the mean of `per_image` (I,)."""
        images = len(per_image)
        return cls((name,), per_image, per_image[:, None], lambda totals: totals / images)

    @cached_property
    def scores(self) -> FloatArray:
        """The scores (M,) of all captions together."""
        return self.of_totals(self.terms.sum(axis=0))

    @property
    def score(self) -> float:
        """The first of `scores`."""
        return float(self.scores[0])
