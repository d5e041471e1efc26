"""Subwords drawn at random: with the right probabilities, the same for the same seed."""

from __future__ import annotations

import math
from collections import Counter

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.text.subword_sampling import SubwordSampler
from captioner.text.subwords import SubwordVocabulary

TEXTS = ["the dog runs", "a dogged runner", "the cat ran to the dogs", "running and catching"] * 9


@pytest.fixture(scope="module")
def vocabulary() -> SubwordVocabulary:
    return SubwordVocabulary.learn(TEXTS, 310)


def test_a_way_is_drawn_as_often_as_its_probability_says(vocabulary: SubwordVocabulary) -> None:
    ways = {tuple(pieces): score for pieces, score in vocabulary.likeliest("running", 16)}
    assert len(ways) > 3
    for exponent in (0.2, 1.0):
        sampler = SubwordSampler(vocabulary, exponent)
        generator = numpy.random.default_rng(1)
        drawn = Counter(tuple(sampler.indices("running", generator)) for _ in range(20_000))
        whole = math.fsum(math.exp(exponent * score) for score in ways.values())
        for pieces, score in ways.items():
            chance = math.exp(exponent * score) / whole
            spread = math.sqrt(chance * (1 - chance) / 20_000)
            assert drawn[pieces] / 20_000 == pytest.approx(chance, abs=5 * spread)


def test_scores_are_sums_of_those_of_pieces_the_likeliest_first(
    vocabulary: SubwordVocabulary,
) -> None:
    ways = vocabulary.likeliest("dogged runner", 16)
    scores = [score for _, score in ways]
    assert scores == sorted(scores, reverse=True)
    assert ways[0][0] == vocabulary.indices(vocabulary.split("dogged runner"))
    assert {vocabulary.join(vocabulary.tokens(pieces)) for pieces, _ in ways} == {"dogged runner"}


@given(st.text(max_size=40), st.integers(0, 9))
def test_what_is_drawn_reads_as_the_text(
    vocabulary: SubwordVocabulary, text: str, seed: int
) -> None:
    drawn = SubwordSampler(vocabulary, 0.1).indices(text, numpy.random.default_rng(seed))
    plain = vocabulary.join(vocabulary.split(text))
    assert vocabulary.join(vocabulary.tokens(drawn)) == plain


@given(st.text(max_size=40))
def test_with_one_way_only_it_is_the_likeliest(vocabulary: SubwordVocabulary, text: str) -> None:
    drawn = SubwordSampler(vocabulary, 0.1, best=1).indices(text, numpy.random.default_rng(0))
    assert drawn == vocabulary.indices(vocabulary.split(text))


def test_letters_never_seen_are_bytes(vocabulary: SubwordVocabulary) -> None:
    sampler = SubwordSampler(vocabulary, 0.1)
    drawn = {tuple(sampler.indices("日", numpy.random.default_rng(seed))) for seed in range(20)}
    assert drawn == {tuple(vocabulary.indices(vocabulary.split("日")))}


@pytest.mark.parametrize("exponent", [0.0, -1.0, math.inf, math.nan])
def test_an_exponent_that_is_none(vocabulary: SubwordVocabulary, exponent: float) -> None:
    with pytest.raises(UserError, match="is not above 0"):
        SubwordSampler(vocabulary, exponent)


def test_pieces_without_probabilities() -> None:
    sampler = SubwordSampler(SubwordVocabulary.learn(TEXTS, 300, method="bpe"), 0.5)
    with pytest.raises(UserError, match="have no probabilities"):
        sampler.indices("dog", numpy.random.default_rng(0))
