import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_decoder import (
    END,
    START,
    TableDecoder,
    assert_replayed,
    memory_of,
    naive_beam_search,
    random_table,
    search,
)

from captioner.decoding.options import AnySearch
from captioner.decoding.rules import Constraints


@given(
    seed=st.integers(0, 10**6),
    vocabulary_size=st.integers(2, 6),
    width=st.integers(1, 4),
    minimum=st.integers(0, 3),
    more=st.integers(1, 4),
    block=st.integers(0, 3),
    distance=st.integers(0, 3),
    forbid=st.booleans(),
    alike=st.booleans(),
    phrases=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=3),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_a_narrow_beam_equals_the_search_written_plainly(
    seed, vocabulary_size, width, minimum, more, block, distance, forbid, alike, phrases, alpha
) -> None:
    decoder = TableDecoder(random_table(seed, vocabulary_size))
    lengths = {"minimum_length": minimum, "maximum_length": minimum + more}
    options = {**lengths, "block_ngrams": block, "repeat_distance": distance}
    limits = {"forbidden": (START,) * forbid, "repeatable": (vocabulary_size - 1, END)}
    limits["classes"] = (0, 1, 2, 2, 4, 2)[:vocabulary_size] if alike else ()
    limits["phrases"] = tuple(phrase for phrase in phrases if max(phrase) < vocabulary_size)
    found = search(
        decoder, memory_of(3, 8), limits, beam=width, length_normalisation=alpha, **options
    )

    def rank(item: tuple[list[int], float]) -> tuple[bool, float]:
        tokens, total = item
        is_last = len(tokens) == minimum + more
        is_cut = is_last and decoder.replay(source, tokens)[-1] < math.log(0.5)
        return is_cut, -total / ((6 + len(tokens)) / 6) ** alpha

    for source, hypotheses in zip((3, 8), found, strict=True):
        constraints = Constraints(AnySearch(**options), **limits)
        expected = naive_beam_search(decoder, source, width, constraints)
        assert 1 <= len(expected) <= width
        expected.sort(key=rank)
        for hypothesis, (tokens, total) in zip(hypotheses, expected, strict=True):
            assert hypothesis.tokens == tokens
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-3)
            score = total / ((6 + len(tokens)) / 6) ** alpha
            assert hypothesis.score == pytest.approx(score, rel=1e-6, abs=1e-3)
            if len(tokens) >= minimum:  # Else the end is not as likely as the model says.
                assert_replayed(decoder, source, hypothesis)
