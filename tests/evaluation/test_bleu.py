from __future__ import annotations

import math

import pytest

from captioner.evaluation.bleu import bleu, bleu_of_totals


def test_worked_by_hand() -> None:
    scores = bleu(
        [["the", "the", "the", "cat", "sat"], ["a", "dog"]],
        [[["the", "cat", "sat", "on", "the", "mat"], ["the", "cat"]], [["a", "dog", "runs"]]],
    )
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


def test_of_two_equally_close_references_the_shorter_counts() -> None:
    scores = bleu([list("abcd")], [[list("abcde"), list("abc"), list("abcdefgh")]])
    assert scores.reference_length == 3
    assert scores.brevity_penalty == 1.0


def test_a_caption_that_is_a_reference_scores_one() -> None:
    scores = bleu([list("abcdef")], [[list("xyz"), list("abcdef")]])
    assert scores.scores == pytest.approx((1.0,) * 4, abs=1e-8)


def test_an_empty_caption_scores_nothing() -> None:
    scores = bleu([[]], [[list("abc")]])
    assert scores.scores == pytest.approx((0.0,) * 4, abs=1e-12)
    assert scores.brevity_penalty == 0.0


def test_terms_may_be_picked_image_by_image() -> None:
    hypotheses = [list("abcd"), list("bcaad"), list("dd")]
    references = [[list("abca")], [list("bcd"), list("aad")], [list("dcba")]]
    rows = [2, 0, 0]
    picked = bleu_of_totals(bleu(hypotheses, references).terms[rows].sum(axis=0))
    expected = bleu([hypotheses[row] for row in rows], [references[row] for row in rows])
    assert picked.tolist() == expected.scores.tolist()
