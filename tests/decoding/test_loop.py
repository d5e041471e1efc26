"""What holds for every strategy, and the loop with a decoder that really attends."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import pytest
import torch
from table_decoder import END, ROWS, START, TableDecoder, memory_of, random_table
from torch import Tensor, nn

from captioner import cpu
from captioner.attention import AdditiveScore, Attention, Memory
from captioner.decoding import (
    BeamSearch,
    Constraints,
    Hypothesis,
    Sampling,
    Step,
    decode,
)
from captioner.errors import UserError

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


@pytest.mark.parametrize("name", STRATEGIES)
def test_decoding_begins_with_the_start_token(name) -> None:
    decoder = TableDecoder(random_table(1, 6))
    decode(decoder, memory_of(1, 2), start=4, end=END, strategy=STRATEGIES[name]())
    assert decoder.fed[0].tolist() == [[4], [4]]


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_gives_no_numbers_is_refused(name, value) -> None:
    table = random_table(1, 6)
    table[:, 3] = value
    with pytest.raises(UserError, match="the model's output is not a number"):
        decode(TableDecoder(table), memory_of(1), start=START, end=END, strategy=STRATEGIES[name]())


def test_a_model_that_rules_out_everything_is_refused() -> None:
    with pytest.raises(UserError, match="the model's output is not a number"):
        decode(
            TableDecoder(torch.full((ROWS, 4), float("-inf"))), memory_of(1), start=START, end=END
        )


def test_the_default_is_a_beam_of_five() -> None:
    decoder = TableDecoder(random_table(3, 6))
    default = decode(decoder, memory_of(1), start=START, end=END)
    five = decode(decoder, memory_of(1), start=START, end=END, strategy=BeamSearch(5))
    assert [h.tokens for h in default[0]] == [h.tokens for h in five[0]]
    assert len(default[0]) == 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_logits_of_any_precision(dtype) -> None:
    table = random_table(3, 6).to(dtype)
    decoder = TableDecoder(table)
    for hypothesis in decode(decoder, memory_of(1), start=START, end=END)[0]:
        # Replayed from the same narrow numbers, but added up in float64.
        expected = sum(decoder.replay(1, hypothesis.tokens))
        assert hypothesis.log_probability == pytest.approx(expected, abs=1e-4)


def test_the_search_stops_when_everything_has_ended() -> None:
    table = torch.zeros(ROWS, 5)
    table[:, END] = 30.0
    decoder = TableDecoder(table)
    decode(decoder, memory_of(1, 2), start=START, end=END, strategy=BeamSearch(1))
    assert len(decoder.widths) == 1


def test_no_gradient_is_kept() -> None:
    table = random_table(3, 6).requires_grad_()
    (hypotheses,) = decode(TableDecoder(table), memory_of(1), start=START, end=END)
    assert not hypotheses[0].attention.requires_grad


class RecurrentState(NamedTuple):
    memory: Memory
    hidden: Tensor  # (B, K, H)


class RecurrentDecoder(nn.Module):
    """A small decoder on the attention core: K queries of a source share its memory."""

    def __init__(self, vocabulary_size: int = 9, size: int = 8, memory_size: int = 5) -> None:
        super().__init__()
        self.attention = Attention(AdditiveScore(size, memory_size, 6))
        self.embedding = nn.Embedding(vocabulary_size, size)
        self.initial = nn.Linear(memory_size, size)
        self.cell = nn.GRUCell(size + memory_size, size)
        self.output = nn.Linear(size + memory_size, vocabulary_size)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.8)

    def start(self, memory: Memory) -> RecurrentState:
        return RecurrentState(memory, self.initial(memory.values[:, :1]))

    def step(self, tokens: Tensor, state: object) -> Step:
        assert isinstance(state, RecurrentState)
        memory, hidden = state
        attended = self.attention(hidden, memory)
        inputs = torch.cat([self.embedding(tokens), attended.context], dim=-1)
        new = self.cell(inputs.flatten(0, 1), hidden.flatten(0, 1)).view_as(hidden)
        logits = self.output(torch.cat([new, attended.context], dim=-1))
        return Step(logits, RecurrentState(memory, new), attended.weights)

    def select(self, state: object, rows: Tensor) -> RecurrentState:
        assert isinstance(state, RecurrentState)
        index = rows.unsqueeze(-1).expand(-1, -1, state.hidden.shape[-1])
        return RecurrentState(state.memory, state.hidden.gather(1, index))


@pytest.fixture
def model() -> RecurrentDecoder:
    torch.manual_seed(0)
    return RecurrentDecoder().eval()


LENGTHS = (4, 7, 2, 5)
SOURCES = torch.randn(4, 7, 5, generator=torch.Generator().manual_seed(1))
MASK = torch.arange(7) < torch.tensor(LENGTHS).unsqueeze(-1)


@torch.no_grad()
def replay(model: RecurrentDecoder, values: Tensor, tokens: list[int]) -> tuple[list, Tensor]:
    """Token by token, one row: the log-probability of each token and the end, and the maps."""
    state = model.start(model.attention.remember(values))
    terms, maps = [], []
    for given, wanted in zip([START, *tokens], [*tokens, END], strict=True):
        step = model.step(torch.tensor([[given]]), state)
        state = step.state
        terms.append(step.logits.log_softmax(dim=-1)[0, 0, wanted].item())
        maps.append(step.weights[0, 0])
    return terms, torch.stack(maps)[:-1]


@pytest.mark.parametrize("name", STRATEGIES)
def test_words_and_maps_of_a_padded_batch_are_those_of_a_replay(model, name) -> None:
    found = decode(
        model,
        model.attention.remember(SOURCES, MASK),
        start=START,
        end=END,
        strategy=STRATEGIES[name](),
        constraints=Constraints(2, 10),
    )
    for values, length, hypotheses in zip(SOURCES, LENGTHS, found, strict=True):
        for hypothesis in hypotheses:
            terms, maps = replay(model, values[None, :length], hypothesis.tokens)
            assert hypothesis.token_log_probabilities == pytest.approx(terms, abs=1e-4)
            torch.testing.assert_close(hypothesis.attention[:, :length], maps, rtol=1e-4, atol=1e-5)
            padding = hypothesis.attention[:, length:]
            assert torch.equal(padding, torch.zeros_like(padding))


@pytest.mark.parametrize("width", [1, 3])
def test_a_padded_batch_equals_the_sources_one_at_a_time(model, width) -> None:
    def run(memory):
        return decode(
            model,
            memory,
            start=START,
            end=END,
            strategy=BeamSearch(width),
            constraints=Constraints(1, 10, block_ngrams=2),
        )

    together = run(model.attention.remember(SOURCES, MASK))
    for values, length, hypotheses in zip(SOURCES, LENGTHS, together, strict=True):
        (alone,) = run(model.attention.remember(values[None, :length]))
        assert [h.tokens for h in hypotheses] == [h.tokens for h in alone]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in alone], abs=1e-4)


def test_keys_are_projected_once_for_a_whole_search(model) -> None:
    calls: list[int] = []
    model.attention.score.key_projection.register_forward_hook(
        lambda _module, inputs, _output: calls.append(inputs[0].shape[0])
    )
    memory = model.attention.remember(SOURCES, MASK)
    decode(model, memory, start=START, end=END, constraints=Constraints(4, 10))
    assert calls == [4]  # once, and for the four sources, not for their hypotheses


def test_the_exponentials_of_keys_are_computed_once_for_a_whole_search(
    model, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[torch.Size] = []
    exponentials = cpu.exponentials
    monkeypatch.setattr(
        cpu, "exponentials", lambda keys: (computed.append(keys.shape), exponentials(keys))[1]
    )
    memory = model.attention.remember(SOURCES[:1])
    decode(model, memory, start=START, end=END, constraints=Constraints(4, 10))
    assert computed == [memory.keys.shape]


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
