import math

import numpy as np
import pytest

from captioner.evaluation.corpus import Corpus
from captioner.evaluation.score import evaluate_captions
from captioner.evaluation.word_precision import content_share, content_stems, word_precision

CAPTIONS = [
    ["two", "dogs", "running", "on", "the", "grass"],  # two, dog, run, grass: 3 of 4
    ["a", "cat", "on", "a", "sofa"],  # cat, sofa: 0 of 2
    ["there", "is", "one", "of", "them"],  # no content word
    ["a", "red", "bus", "and", "a", "red", "car"],  # red, bus, red, car: 3 of 4; red counts twice
]
REFERENCES = [
    [["a", "dog", "runs"], ["some", "grass"]],
    [["a", "dog"], ["on", "a", "dog", "in", "the", "sand"]],
    [["a", "dog"]],
    [["red", "cars"]],
]


def test_content_words_are_compared_by_stem() -> None:
    assert content_stems(["the", "dogs", "are", "running"]) == ["dog", "run"]
    assert content_share(["a", "dog"], [[], ["the", "dogs"]]) == 1
    assert content_share(["is", "n't", "the"], [["the"]]) is None


def test_scores_worked_out_by_hand() -> None:
    scores = word_precision(Corpus.of(CAPTIONS, REFERENCES))
    np.testing.assert_array_equal(scores.per_image, [0.75, 0.0, math.nan, 0.75])
    assert scores.score == pytest.approx((0.75 + 0 + 0.75) / 3)
    assert scores.scores[1] == 2 / 4


def test_no_content_words_at_all_score_zero() -> None:
    scores = word_precision(Corpus.of([["the"], []], [[["the"]], [["a", "dog"]]]))
    assert scores.scores.tolist() == [0, 1]


def test_among_the_scores_of_captions() -> None:
    captions = [" ".join(words) for words in CAPTIONS]
    references = [[" ".join(words) for words in each] for each in REFERENCES]
    scores = evaluate_captions(captions, references, metrics=["word-precision"])
    assert scores.by_name() == {"word-precision": pytest.approx(0.5), "captions with none": 0.5}
    assert [row["word-precision"] for row in scores.per_image()] == [0.75, 0.0, None, 0.75]
    metric = scores.metrics["word-precision"]
    resampled = metric.of_totals(4 * metric.terms[[2, 0]])  # The third image only, then the first.
    np.testing.assert_allclose(resampled, [[0, 1], [0.75, 0]])
    assert "word-precision      0.5000" in scores.table().splitlines()
