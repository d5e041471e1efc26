"""Intervals and comparisons against full enumeration, and BLEU that no match gives."""

import itertools
import random

import numpy as np
import pytest

from captioner.evaluation import significance
from captioner.evaluation.coco_metrics import bleu as corpus_bleu
from captioner.evaluation.corpus import Corpus, Metric
from captioner.evaluation.significance import compare, confidence_intervals

Words = list[str]


def bleu(captions: list[Words], references: list[list[Words]]) -> Metric:
    return corpus_bleu(Corpus(captions, references))


def test_bleu_of_a_resample_is_bleu_of_the_repeated_captions() -> None:
    chance = random.Random(1)
    drawn = [chance.choices("abcde", k=chance.randint(3, 8)) for _ in range(18)]
    hypotheses, references = drawn[:6], [drawn[n : n + 2] for n in range(6, 18, 2)]
    terms = bleu(hypotheses, references)
    for rows in itertools.islice(itertools.product(range(6), repeat=6), 0, 6**6, 4001):
        times = np.bincount(rows, minlength=6)
        expected = bleu([hypotheses[i] for i in rows], [references[i] for i in rows]).scores
        np.testing.assert_allclose(terms.of_totals(times @ terms.terms), expected, rtol=1e-12)


def test_interval_and_p_value_of_a_mean_by_full_enumeration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(significance, "RESAMPLES", 20_000)
    first, second = np.array([0.9, 0.4, 0.5, 0.8]), np.array([0.5, 0.5, 0.4, 0.3])
    metrics = [Metric.mean("x", first)], [Metric.mean("x", second)]
    means = [np.mean(drawn) for drawn in itertools.product(first, repeat=4)]
    interval = confidence_intervals(metrics[0], 0.8)
    assert interval == confidence_intervals(metrics[0], 0.8)
    assert interval["x"] == pytest.approx(np.quantile(means, [0.1, 0.9]), abs=0.02)
    drawn = [np.mean(each) for each in itertools.product(first - second, repeat=4)]
    found = compare(*metrics)["x"]
    assert found.difference == pytest.approx(np.mean(first - second))
    assert (found.first, found.second) == pytest.approx((first.mean(), second.mean()))
    not_better = np.mean([mean <= 1e-12 for mean in drawn])
    assert 0 < not_better < 0.1
    assert found.p_bootstrap == pytest.approx(2 * not_better, abs=0.005)


def test_bleu_of_no_match_at_all_is_a_tie() -> None:
    """The constants that COCO adds make some number of it, which is no better than another."""
    references = [[["a", "b", "c", "d", "e"]]] * 5
    first = [["a", "b", "x", "d", "e"]] * 5
    second = [["x", "b", "c", "x", "e", "x", "x"]] * 5
    scores = bleu(first, references).scores, bleu(second, references).scores
    assert 0 < scores[1][3] < scores[0][3] < significance.NOTHING
    terms = [bleu(first, references)], [bleu(second, references)]
    found = compare(*terms)
    four = found["BLEU-4"]
    assert (four.first, four.second) == pytest.approx((scores[0][3], scores[1][3]))
    assert (four.difference, four.interval, four.p_bootstrap) == (0, (0, 0), 1)
    assert found["BLEU-1"].first == pytest.approx(scores[0][0])
    assert found["BLEU-1"].p_bootstrap == 2 / 1001
