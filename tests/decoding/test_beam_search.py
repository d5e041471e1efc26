import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from table_decoder import (
    END,
    START,
    TableDecoder,
    every_sequence,
    memory_of,
    naive_beam_search,
    random_table,
)

from captioner.decoding.constraints import Constraints
from captioner.decoding.loop import BeamSearch, decode


def search(decoder, memory, width, constraints=None, alpha=0.0):
    return decode(
        decoder,
        memory,
        start=START,
        end=END,
        strategy=BeamSearch(width),
        constraints=constraints,
        length_normalisation=alpha,
    )


@pytest.mark.parametrize("alpha", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_is_brute_force(alpha, seed) -> None:
    vocabulary_size, maximum_length = 4, 3
    decoder = TableDecoder(random_table(seed, vocabulary_size))
    sequences = every_sequence(vocabulary_size, maximum_length)
    assert len(sequences) == 1 + 3 + 9 + 27
    ranked = []
    for tokens in sequences:
        terms = decoder.replay(5, tokens)
        total = sum(terms)
        cut = len(tokens) == maximum_length and terms[-1] < math.log(0.5)
        ranked.append((total / ((5 + len(tokens) + 1) / 6) ** alpha, total, tokens, cut))
    assert len({cut for *_, cut in ranked}) == 2
    ranked.sort(key=lambda item: (item[3], -item[0]))
    # At the maximum length the end is forced, and counts what the model gives it all the same.
    (hypotheses,) = search(
        decoder,
        memory_of(5),
        len(sequences),
        Constraints(maximum_length=maximum_length),
        alpha,
    )
    assert [hypothesis.tokens for hypothesis in hypotheses] == [item[2] for item in ranked]
    assert [h.cut for h in hypotheses] == [item[3] for item in ranked]
    assert [h.score for h in hypotheses] == pytest.approx([item[0] for item in ranked], abs=1e-4)
    assert [h.log_probability for h in hypotheses] == pytest.approx(
        [item[1] for item in ranked], abs=1e-4
    )


@given(
    seed=st.integers(0, 10**6),
    vocabulary_size=st.integers(2, 6),
    width=st.integers(1, 4),
    minimum=st.integers(0, 3),
    more=st.integers(1, 4),
    block=st.integers(0, 3),
    distance=st.integers(0, 3),
    forbid=st.booleans(),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_a_narrow_beam_equals_the_search_written_plainly(
    seed, vocabulary_size, width, minimum, more, block, distance, forbid, alpha
) -> None:
    decoder = TableDecoder(random_table(seed, vocabulary_size))
    forbidden, last = ((START,) if forbid else ()), vocabulary_size - 1
    constraints = Constraints(minimum, minimum + more, block, forbidden, distance, (last, END))
    found = search(decoder, memory_of(3, 8), width, constraints, alpha)
    for source, hypotheses in zip((3, 8), found, strict=True):
        expected = naive_beam_search(decoder, source, width, constraints)
        assert 1 <= len(expected) <= width
        expected.sort(
            key=lambda item: (
                len(item[0]) == minimum + more
                and decoder.replay(source, item[0])[-1] < math.log(0.5),
                -item[1] / ((6 + len(item[0])) / 6) ** alpha,
            )
        )
        assert [hypothesis.tokens for hypothesis in hypotheses] == [item[0] for item in expected]
        assert [hypothesis.log_probability for hypothesis in hypotheses] == pytest.approx(
            [item[1] for item in expected], abs=1e-3
        )


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_everything_returned_is_what_a_replay_gives(width) -> None:
    decoder = TableDecoder(random_table(21, 6, scale=1.0))
    sources = (4, 9, 16, 25, 36)
    found = search(decoder, memory_of(*sources), width, Constraints(2, 9), 0.6)
    assert len(found) == len(sources)
    for source, hypotheses in zip(sources, found, strict=True):
        assert len(hypotheses) == width
        for hypothesis in hypotheses:
            terms = decoder.replay(source, hypothesis.tokens)
            assert hypothesis.token_log_probabilities == pytest.approx(terms, abs=1e-4)
            assert hypothesis.log_probability == pytest.approx(sum(terms), abs=1e-4)
            length = len(hypothesis.tokens) + 1
            assert hypothesis.score == pytest.approx(
                sum(terms) / ((5 + length) / 6) ** 0.6, abs=1e-4
            )
            # Its maps: of its source, step by step, after its own words and no other row's.
            assert hypothesis.attention.dtype == torch.float32
            assert hypothesis.attention.shape == (len(hypothesis.tokens), 3)
            assert hypothesis.attention.tolist() == decoder.attention(source, hypothesis.tokens)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == width


@pytest.mark.parametrize("width", [1, 3])
def test_a_model_that_cannot_end_still_answers(width) -> None:
    table = random_table(2, 5)
    table[:, END] = float("-inf")
    (hypotheses,) = search(TableDecoder(table), memory_of(7), width, Constraints(maximum_length=6))
    assert len(hypotheses) == width
    assert all(len(hypothesis.tokens) == 6 for hypothesis in hypotheses)
    assert all(math.isfinite(hypothesis.log_probability) for hypothesis in hypotheses)
    # Among such hypotheses the better one is still the first.
    alike = [sum(hypothesis.token_log_probabilities[:-1]) for hypothesis in hypotheses]
    assert alike == sorted(alike, reverse=True)


def test_what_the_model_rules_out_is_never_said() -> None:
    table = random_table(6, 6)
    table[:, 3:] = float("-inf")  # 0, 2 and the end are left: fewer than the beam is wide
    found = search(TableDecoder(table), memory_of(1, 2), 8, Constraints(maximum_length=4))
    for hypotheses in found:
        assert len(hypotheses) == 8
        assert {token for h in hypotheses for token in h.tokens} <= {0, 2}
