from __future__ import annotations

import pytest

from captioner.evaluation.corpus import Corpus
from captioner.evaluation.rouge import rouge_l


def test_worked_by_hand() -> None:
    scores = rouge_l(
        Corpus.of(
            [["a", "dog", "runs", "fast"], ["x"]],
            [[["a", "brown", "dog", "runs"], ["dog", "fast"]], [["y"]]],
        )
    )
    # Precision: "a dog runs" of four words. Recall: "dog fast" of two words.
    precision, recall = 3 / 4, 1.0
    expected = (1 + 1.44) * precision * recall / (recall + 1.44 * precision)
    assert scores.per_image.tolist() == pytest.approx([expected, 0.0])
    assert scores.score == pytest.approx(expected / 2)
