from __future__ import annotations

import math

import pytest

from captioner.evaluation.bleu import bleu
from captioner.evaluation.corpus import Corpus


def test_worked_by_hand() -> None:
    captions = [["the", "the", "the", "cat", "sat"], ["a", "dog"]]
    references = [[["the", "cat", "sat", "on", "the", "mat"], ["the", "cat"]]]
    scores = bleu(Corpus.of(captions, [*references, [["a", "dog", "runs"]]]))
    # "the" counts twice at most: 4 of 5 and 2 of 2 words; "the cat", "cat sat", "a dog" of 4 + 1
    # pairs; "the cat sat" of 3 + 0 triples; no four words.
    assert scores.terms[:, :4].sum(axis=0).tolist() == [6, 3, 1, 0]
    assert scores.terms[:, 4:8].sum(axis=0).tolist() == [7, 5, 3, 2]
    assert (scores.hypothesis_length, scores.reference_length) == (7, 6 + 3)
    penalty = math.exp(1 - 9 / 7)
    assert scores.brevity_penalty == pytest.approx(penalty)
    assert scores.scores[0] == pytest.approx(penalty * 6 / 7)
    assert scores.scores[1] == pytest.approx(penalty * math.sqrt(6 / 7 * 3 / 5))
    assert scores.scores[2] == pytest.approx(penalty * (6 / 7 * 3 / 5 / 3) ** (1 / 3))
    assert scores.scores[3] == pytest.approx(0.0, abs=1e-3)
    assert scores.per_image[1, :2] == pytest.approx([math.exp(1 - 3 / 2)] * 2)
