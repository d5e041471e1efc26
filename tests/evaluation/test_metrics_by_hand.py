"""Metrics with worked figures: rarity, true words, diversity, CHAIR; intervals."""

import itertools
import math
import random

import numpy as np
import pytest

from captioner.data.instances import Synonyms
from captioner.evaluation import corpus, wording
from captioner.evaluation.coco_metrics import bleu as corpus_bleu
from captioner.evaluation.corpus import Corpus, Metric, compare, confidence_intervals
from captioner.evaluation.score import Scorer, evaluate_captions


def split(texts: list[str]) -> list[list[str]]:
    return [text.split() for text in texts]


# Word precision

CAPTIONS = [
    "two dogs running on the grass",  # two, dog, run, grass: 3 of 4
    "a cat on a sofa",  # cat, sofa: 0 of 2
    "there is one of them",  # no content word
    "a red bus and a red car",  # red, bus, red, car: 3 of 4; red counts twice
]
REFERENCES = [["a dog runs", "some grass"], ["a dog", "on a dog"], ["a dog"], ["red cars"]]


def test_word_precision() -> None:
    assert wording.content_stems(["the", "dogs", "are", "running"]) == ["dog", "run"]
    metric = wording.word_precision(Corpus(split(CAPTIONS), map(split, REFERENCES)))
    np.testing.assert_array_equal(metric.per_image, [0.75, 0.0, math.nan, 0.75])
    assert metric.scores.tolist() == [pytest.approx((0.75 + 0 + 0.75) / 3), 2 / 4]
    resampled = metric.of_totals(4 * metric.terms[[2, 0]])  # The third image only, then the first.
    np.testing.assert_allclose(resampled, [[0, 1], [0.75, 0]])
    nothing = wording.word_precision(Corpus([["the"], []], [[["the"]], [["a", "dog"]]]))
    assert nothing.scores.tolist() == [0, 1]
    scores = evaluate_captions(CAPTIONS, REFERENCES, metrics=["word-precision"])
    assert scores.by_name() == {"word-precision": pytest.approx(0.5), "captions with none": 0.5}
    assert [row["word-precision"] for row in scores.rows()] == [0.75, 0.0, None, 0.75]


# Words that are true


def true_of(caption: str, *references: str) -> list[str]:
    words = caption.split()
    truth = wording.true_words(words, split([*references]))
    return [word for word, is_true in zip(words, truth, strict=True) if is_true]


def test_a_word_is_true_if_a_reference_says_the_same() -> None:
    assert true_of("dogs run on a beach", "a dog by the sea", "it runs") == ["dogs", "run"]
    assert true_of("a woman on a sofa", "a man on the couch") == ["sofa"]
    assert true_of("a person with a bike", "a woman has a bicycle") == ["person", "bike"]
    assert true_of("a man with a cup", "a person with a cat") == []
    assert true_of("a guy lies here", "a man is laying down") == ["guy", "lies"]
    assert wording.true_words(["a", "of"], [["a", "dog"]]) == [None, None]
    assert wording.true_words(["hat"], [[]]) == [False]


SAID = ["a man sits on a sofa", "a red ball"]
PEOPLE_SAID = [["a guy sits on the couch", "a man sleeps"], ["the ball is blue"]]


def test_shares_by_kind() -> None:
    found = wording.words_by_kind(split(SAID), list(map(split, PEOPLE_SAID)))
    assert found["person"] == {"words": 1, "said": 1.0, "true": 1.0}
    assert found["place"] == {"words": 1, "said": 0.0, "true": 1.0}  # A sofa is a couch.
    assert found["quality"] == {"words": 1, "said": 0.0, "true": 0.0}
    assert found["number"] == {"words": 0, "said": None, "true": None}
    assert found["all"] == {"words": 5, "said": pytest.approx(3 / 5), "true": pytest.approx(4 / 5)}
    captions = dict(enumerate(SAID))
    scores = Scorer(words=True).score(captions, PEOPLE_SAID, "test")
    assert scores.to_dict()["words"]["all"]["words"] == 5
    assert "content words  words  said    true" in scores.table()
    assert "words" not in Scorer().score(captions, PEOPLE_SAID, "test").to_dict()


# Wording


def test_diversity() -> None:
    captions = split(["a dog on a a mat", *["a dog on a mat"] * 2, "a cat and a cat"])
    training = iter(split(["a dog on a mat", "a cat", ""]))
    assert "seen_in_training" not in wording.text_diversity(captions)
    expected = {"distinct_captions": 3, "distinct_share": 0.75, "seen_in_training": 0.5}
    expected |= {"vocabulary": 6, "mean_length": 21 / 4, "doubled_word": 0.25}
    expected |= {"repeated_2_words": 0.25, "repeated_3_words": 0, "repeated_4_words": 0}
    assert wording.text_diversity(captions, training) == expected


# CHAIR

WORDS = {"dog": "dog", "puppy": "dog", "hot dog": "hot dog", "cat": "cat", "man": "person"}
SYNONYMS = Synonyms({tuple(word.split()): name for word, name in WORDS.items()})
KNOWN = frozenset({"person", "cat", "dog", "hot dog"})


def test_hallucination() -> None:
    # Dog is there, cat is not; person is by a reference, hot dog by annotation; the third names
    # nothing, where a dog is; in the last nothing is there.
    captions = ["a dog and a puppy chase a cat", "a man eats a hot dog", "a house"]
    captions = split([*captions, "a cat in a house"])
    references = [["a dog", "a puppy"], ["the man", "food"], ["a house"], ["a house"]]
    categories = [["dog"], {"hot dog"}, frozenset({"dog", "kite"}), ()]
    found = wording.chair(captions, list(map(split, references)), categories, SYNONYMS, KNOWN)
    # Dog and puppy are one thing of the first caption.
    expected = {"CHAIR-i": 2 / 5, "CHAIR-s": 2 / 4, "recall": 3 / 4, "mentions": 5}
    expected |= {"hallucinated_mentions": 2, "present": 4, "hallucinating_captions": 2}
    expected |= {"captions": 4, "categories": 4}
    assert found == {**expected, "most_hallucinated": {"cat": 2}, "dropped_categories": []}
    nothing = wording.chair([["a", "house"]], [[["a", "house"]]], [[]], SYNONYMS, KNOWN)
    assert list(nothing.values())[:3] == [None, 0.0, None]


# Intervals and comparisons against full enumeration, and BLEU that no match gives


def bleu(captions: list[list[str]], references: list[list[list[str]]]) -> Metric:
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


def test_interval_and_p_value_of_a_mean_by_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "RESAMPLES", 20_000)
    first, second = np.array([0.9, 0.4, 0.5, 0.8]), np.array([0.5, 0.5, 0.4, 0.3])
    metrics = [Metric.mean("x", first)], [Metric.mean("x", second)]
    means = [np.mean(drawn) for drawn in itertools.product(first, repeat=4)]
    interval = confidence_intervals(metrics[0], 0.8)
    assert interval == confidence_intervals(metrics[0], 0.8)
    assert interval["x"] == pytest.approx(np.quantile(means, [0.1, 0.9]), abs=0.02)
    drawn = [np.mean(each) for each in itertools.product(first - second, repeat=4)]
    found = compare(*metrics)["x"]
    assert found["difference"] == pytest.approx(np.mean(first - second))
    assert (found["first"], found["second"]) == pytest.approx((first.mean(), second.mean()))
    not_better = np.mean([mean <= 1e-12 for mean in drawn])
    assert 0 < not_better < 0.1
    assert found["p_bootstrap"] == pytest.approx(2 * not_better, abs=0.005)


def test_bleu_of_no_match_at_all_is_a_tie() -> None:
    """The constants that COCO adds make some number of it, which is no better than another."""
    references = [[["a", "b", "c", "d", "e"]]] * 5
    first = [["a", "b", "x", "d", "e"]] * 5
    second = [["x", "b", "c", "x", "e", "x", "x"]] * 5
    scores = bleu(first, references).scores, bleu(second, references).scores
    assert 0 < scores[1][3] < scores[0][3] < corpus.NO_DIFFERENCE
    terms = [bleu(first, references)], [bleu(second, references)]
    found = compare(*terms)
    four = found["BLEU-4"]
    assert (four["first"], four["second"]) == pytest.approx((scores[0][3], scores[1][3]))
    assert (four["difference"], four["interval"], four["p_bootstrap"]) == (0, (0, 0), 1)
    assert found["BLEU-1"]["first"] == pytest.approx(scores[0][0])
    assert found["BLEU-1"]["p_bootstrap"] == 2 / 1001
