"""What holds for every strategy; the ranking of what has ended."""

import math
from itertools import chain

import pytest
import torch
from table_decoder import END, START, TableDecoder, memory_of, random_table

from captioner.attention.memory import Memory
from captioner.decoding.constraints import Constraints
from captioner.decoding.loop import BeamSearch, Sampling, decode
from captioner.decoding.protocol import Hypothesis

STRATEGIES = {
    "greedy": lambda: BeamSearch(1),
    "beam": lambda: BeamSearch(4),
    "sampling": lambda: Sampling(torch.Generator().manual_seed(0), width=4),
}


def test_sampling_never_copies_the_memory() -> None:
    decoder = TableDecoder(random_table(1, 6, scale=0.5))
    memory, sampling = memory_of(1, 2, 3), STRATEGIES["sampling"]()
    constraints = Constraints(3, 8)
    decode(decoder, memory, start=START, end=END, strategy=sampling, constraints=constraints)
    assert len(decoder.memories) > 4
    assert all(seen is memory for seen in decoder.memories)
    # One row a source to begin with, then one for each hypothesis.
    assert decoder.widths[0] == 1
    assert set(decoder.widths[1:]) == {sampling.width}


@pytest.mark.parametrize("width", [1, 4])
def test_a_beam_computes_no_row_that_has_ended_and_few_sources(width) -> None:
    decoder = TableDecoder(random_table(1, 6, scale=0.5))
    memory = memory_of(*range(1, 9))
    found = decode(
        decoder,
        memory,
        start=START,
        end=END,
        strategy=BeamSearch(width),
        constraints=Constraints(1, 12),
    )
    computed = len(found)
    for time, fed in enumerate(decoder.fed):
        left = [sum(len(each.tokens) >= time for each in hypotheses) for hypotheses in found]
        if 2 * sum(map(bool, left)) <= computed:
            computed = sum(map(bool, left))
        assert fed.shape == (computed, max(left) if time else 1)
    assert computed < len(found)
    # Handed to `start` and to the steps: the same until half of the sources have ended.
    assert all(seen is memory for seen in decoder.memories if seen.batch_size == len(found))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_logits_of_any_precision(dtype) -> None:
    table = random_table(3, 6).to(dtype)
    decoder = TableDecoder(table)
    for hypothesis in decode(decoder, memory_of(1), start=START, end=END)[0]:
        # Replayed from the same narrow numbers, but added up in float64.
        expected = sum(decoder.replay(1, hypothesis.tokens))
        assert hypothesis.log_probability == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", STRATEGIES)
def test_attention_that_is_not_kept_is_all_that_differs(name: str) -> None:
    decoder = TableDecoder(random_table(12, 5, scale=0.7))

    def found(keep: bool) -> list[list[Hypothesis]]:
        return decode(
            decoder,
            memory_of(3, 5),
            start=START,
            end=END,
            strategy=STRATEGIES[name](),
            constraints=Constraints(maximum_length=8),
            keep_attention=keep,
        )

    pairs = zip(chain(*found(True)), chain(*found(False)), strict=True)
    for whole, bare in pairs:
        assert bare.attention.shape == (len(whole.tokens), 0)
        for field in ("tokens", "log_probability", "token_log_probabilities", "score"):
            assert getattr(bare, field) == getattr(whole, field)


# GNMT's length normalisation and coverage penalty by hand: Wu et al. 2016, equation 14.


class Looking(TableDecoder):
    """Its attention is a distribution over the positions, that depends on the history."""

    def step(self, tokens, state):
        step = super().step(tokens, state)
        raw = torch.stack([step.weights[..., 2] % prime for prime in (3, 5, 7)], dim=-1)
        mask = step.state.memory.mask
        raw = raw if mask is None else raw.masked_fill(~mask.unsqueeze(1), -99.0)
        return step._replace(weights=torch.softmax(raw, dim=-1))


def found_with(beta: float, memory: Memory, keep: bool = True, alpha: float = 0.7):
    return decode(
        Looking(random_table(3, 4)),
        memory,
        start=START,
        end=END,
        strategy=BeamSearch(40),
        constraints=Constraints(maximum_length=3),
        length_normalisation=alpha,
        keep_attention=keep,
        coverage_penalty=beta,
    )


def test_it_ranks_what_has_ended() -> None:
    """Both penalties: s(Y, X) = log P / lp(Y) + cp(X; Y), of every sequence there is."""
    values = memory_of(5, 6).values
    memory = Memory(values, values, torch.tensor([[True, True, True], [True, True, False]]))
    plain, ranked = found_with(0.0, memory), found_with(0.9, memory)
    for source, mask in enumerate(memory.mask.tolist()):
        assert len(plain[source]) == len(ranked[source]) == 40
        scores = {}
        for each in plain[source]:
            decoder, state = Looking(random_table(3, 4)), None
            state = decoder.start(Memory(values[[source]], values[[source]], memory.mask[[source]]))
            received = torch.zeros(3)
            for token in [START, *each.tokens]:
                step = decoder.step(torch.tensor([[token]]), state)
                state = step.state
                received += step.weights[0, 0]
            penalty = sum(
                math.log(min(float(got), 1.0))
                for got, seen in zip(received, mask, strict=True)
                if seen
            )
            length = ((5 + len(each.tokens) + 1) / 6) ** 0.7
            scores[tuple(each.tokens)] = each.log_probability / length + 0.9 * penalty
        cut = {tuple(each.tokens) for each in plain[source] if each.cut}
        expected = sorted(scores, key=lambda tokens: (tokens in cut, -scores[tokens]))
        assert [tuple(each.tokens) for each in ranked[source]] == expected
        assert [each.score for each in ranked[source]] == pytest.approx(
            [scores[tokens] for tokens in expected], abs=1e-3
        )
    orders = [[each.tokens for each in found[0]] for found in (plain, ranked)]
    assert orders[0] != orders[1]


def test_attention_is_looked_at_even_where_it_is_not_kept() -> None:
    memory = memory_of(5)
    kept, dropped = found_with(1.0, memory), found_with(1.0, memory, keep=False)
    assert [each.score for each in kept[0]] == [each.score for each in dropped[0]]
    assert {each.attention.shape[1] for each in dropped[0]} == {0}
    assert {each.attention.shape[1] for each in kept[0]} == {3}
