"""Which words are true, and the shares by kind, worked out by hand."""

import pytest

from captioner.evaluation.score import Scorer
from captioner.evaluation.wording import true_words, words_by_kind


def true_of(caption: str, *references: str) -> list[str]:
    words = caption.split()
    truth = true_words(words, [each.split() for each in references])
    return [word for word, is_true in zip(words, truth, strict=True) if is_true]


def test_a_word_is_true_if_a_reference_says_the_same() -> None:
    assert true_of("dogs run on a beach", "a dog by the sea", "it runs") == ["dogs", "run"]
    assert true_of("a woman on a sofa", "a man on the couch") == ["sofa"]
    assert true_of("a person with a bike", "a woman has a bicycle") == ["person", "bike"]
    assert true_of("a man with a cup", "a person with a cat") == []
    assert true_of("a guy lies here", "a man is laying down") == ["guy", "lies"]
    assert true_words(["a", "of"], [["a", "dog"]]) == [None, None]
    assert true_words(["hat"], [[]]) == [False]


CAPTIONS = ["a man sits on a sofa", "a red ball"]
REFERENCES = [["a guy sits on the couch", "a man sleeps"], ["the ball is blue"]]


def test_shares_by_kind() -> None:
    found = words_by_kind(
        [each.split() for each in CAPTIONS],
        [[each.split() for each in of_image] for of_image in REFERENCES],
    )
    assert found["person"] == {"words": 1, "said": 1.0, "true": 1.0}
    assert found["place"] == {"words": 1, "said": 0.0, "true": 1.0}  # A sofa is a couch.
    assert found["quality"] == {"words": 1, "said": 0.0, "true": 0.0}
    assert found["number"] == {"words": 0, "said": None, "true": None}
    assert found["all"] == {"words": 5, "said": pytest.approx(3 / 5), "true": pytest.approx(4 / 5)}


def test_a_scorer_says_them_if_asked() -> None:
    captions = dict(enumerate(CAPTIONS))
    scores = Scorer(words=True).score(captions, REFERENCES, "test")
    assert scores.to_dict()["words"]["all"]["words"] == 5
    assert "content words  words  said    true" in scores.table()
    assert "words" not in Scorer().score(captions, REFERENCES, "test").to_dict()
