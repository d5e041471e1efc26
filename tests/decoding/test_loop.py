"""What holds for every strategy; the ranking of what has ended."""

import pytest
import torch
from table_decoder import END, START, TableDecoder, assert_replayed, memory_of, random_table, search

from captioner.attention.memory import Memory
from captioner.decoding.loop import BeamSearch, decode
from captioner.decoding.options import AnySearch
from captioner.decoding.rules import Constraints


@pytest.mark.parametrize("width", [1, 4])
def test_a_beam_computes_no_row_that_has_ended_and_few_sources(width) -> None:
    decoder = TableDecoder(random_table(1, 6, scale=0.5))
    memory = memory_of(*range(1, 9))
    found = search(decoder, memory, beam=width, minimum_length=1, maximum_length=12)
    computed = len(found)
    for time, fed in enumerate(decoder.fed):
        left = [sum(len(each.tokens) >= time for each in hypotheses) for hypotheses in found]
        if 2 * sum(map(bool, left)) <= computed:
            computed = sum(map(bool, left))
        assert fed.shape == (computed, max(left) if time else 1)
    assert computed < len(found)
    # Handed to `start` and to the steps: the same until half of the sources have ended.
    assert {id(m) for m in decoder.memories if m.batch_size == len(found)} == {id(memory)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_logits_of_any_precision(dtype) -> None:
    decoder = TableDecoder(random_table(3, 6).to(dtype))
    for hypothesis in search(decoder, memory_of(1))[0]:
        assert_replayed(decoder, 1, hypothesis)  # From the same narrow numbers, in float64.


# GNMT's length normalisation and coverage penalty by hand: Wu et al. 2016, equation 14.


def looking(hashes: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Hashes (...) and a mask (..., 3) -> a distribution over the positions."""
    raw = torch.stack([hashes % prime for prime in (3, 5, 7)], dim=-1)
    return raw.masked_fill(~mask, -99.0).softmax(dim=-1)


class Looking(TableDecoder):
    """Its attention is `looking` of the history."""

    def step(self, tokens, state):
        step = super().step(tokens, state)
        mask = step.state.memory.mask.unsqueeze(1)
        return step._replace(weights=looking(step.weights[..., 2], mask))


def test_it_ranks_what_has_ended() -> None:
    """Both penalties: s(Y, X) = log P / lp(Y) + cp(X; Y), of every sequence there is."""
    values = memory_of(5, 6).values
    memory = Memory(values, values, torch.tensor([[True, True, True], [True, True, False]]))
    decoder = Looking(random_table(3, 4))
    plain, ranked = (
        decode(
            decoder,
            memory,
            start=START,
            end=END,
            strategy=BeamSearch(40),
            constraints=Constraints(AnySearch(minimum_length=0, maximum_length=3)),
            length_normalisation=0.7,
            coverage_penalty=beta,
        )
        for beta in (0.0, 0.9)
    )
    for source, mask in enumerate(memory.mask):
        assert len(plain[source]) == len(ranked[source]) == 40
        scores = {}
        for each in plain[source]:
            history = torch.tensor(decoder.attention(5 + source, [*each.tokens, END]))
            received = looking(history[:, 2], mask).sum(dim=0)  # (L,)
            penalty = received[mask].clamp(max=1).log().sum()
            length = ((5 + len(each.tokens) + 1) / 6) ** 0.7
            scores[tuple(each.tokens)] = each.log_probability / length + 0.9 * float(penalty)
        cut = {tuple(each.tokens) for each in plain[source] if each.cut}
        expected = sorted(scores, key=lambda tokens: (tokens in cut, -scores[tokens]))
        assert [tuple(each.tokens) for each in ranked[source]] == expected
        found = [each.score for each in ranked[source]]
        assert found == pytest.approx([scores[tokens] for tokens in expected], abs=1e-3)
    assert [each.tokens for each in plain[0]] != [each.tokens for each in ranked[0]]
