"""The search of an exported step against the search written plainly, as in tests/decoding."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from captioner.attention.memory import Memory
from captioner.backends.export import _quiet, _search_graphs
from captioner.backends.graphs import START, STEP, Graph, GraphStepper, search_inputs
from captioner.decoding.loop import BeamSearch, decode
from captioner.decoding.options import SearchOptions
from captioner.decoding.protocol import Step
from captioner.decoding.rules import Constraints
from captioner.decoding.search import search_hypotheses
from captioner.text.vocabulary import Vocabulary

SIZE = 9
FORBIDDEN, REPEATABLE = (0, 1, 3), (2, 8)

pytestmark = pytest.mark.slow


class Chain(nn.Module):
    """A decoder whose next token depends on the last one and the sum of all."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(2 * torch.randn(31, SIZE, SIZE, generator=generator))

    def start(self, memory: Memory) -> tuple[Memory, Tensor]:
        return memory, memory.values[:, :1, 0].long()

    def step(self, tokens: Tensor, state: tuple[Memory, Tensor]) -> Step:
        memory, sums = state
        sums = (3 * sums + tokens) % 31  # (B, K)
        weights = torch.softmax(memory.values[..., 0].unsqueeze(1) * sums.unsqueeze(-1) / 9, dim=-1)
        logits = self.table.flatten(end_dim=1)[SIZE * sums + tokens]  # (B, K, V)
        return Step(logits, (memory, sums), weights)


def remember(sources: Tensor) -> Memory:
    """Numbers (B, 3) as a memory."""
    return Memory(sources.unsqueeze(-1), sources.unsqueeze(-1))


@pytest.fixture(scope="module")
def graphs() -> dict[str, Any]:
    with _quiet(), torch.no_grad():
        made = _search_graphs(
            Chain(),
            remember,
            lambda batch, _: {"sources": torch.arange(3.0 * batch).view(batch, 3) % 7},
            [{0: "batch"}],
        )
    return {name: Graph(graph.SerializeToString(), 1, {}) for name, graph in made.items()}


@given(
    sources=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    width=st.integers(1, 12),
    minimum=st.integers(0, 3),
    more=st.integers(1, 4),
    block=st.integers(0, 3),
    distance=st.integers(0, 4),
    alpha=st.sampled_from([0.0, 0.7]),
    beta=st.sampled_from([0.0, 0.3]),
    alike=st.booleans(),
    phrases=st.lists(st.lists(st.integers(2, 8), min_size=1, max_size=3), max_size=3),
    begin=st.lists(st.sampled_from([4, 5, 8]), max_size=2),
)
def test_numpy_and_a_graph_find_what_torch_finds(
    graphs, sources, width, minimum, more, block, distance, alpha, beta, alike, phrases, begin
) -> None:
    options = SearchOptions(
        beam=width,
        minimum_length=minimum,
        maximum_length=minimum + more,
        block_ngrams=block,
        repeat_distance=distance,
        length_normalisation=alpha,
    )
    constraints = Constraints(
        options,
        FORBIDDEN,
        REPEATABLE,
        classes=(0, 1, 2, 3, 4, 4, 6, 4, 8) if alike else (),
        phrases=tuple(map(tuple, phrases)),
        begin=tuple(begin),
    )
    numbers = torch.tensor([[source, 1.0, 2.0] for source in sources], dtype=torch.float32)
    expected = decode(
        Chain(),
        remember(numbers),
        start=Vocabulary.start,
        end=Vocabulary.end,
        strategy=BeamSearch(width),
        constraints=constraints,
        length_normalisation=alpha,
        coverage_penalty=beta,
    )
    rules = search_inputs(constraints, SIZE)
    stepper = GraphStepper(graphs[START], graphs[STEP], {"sources": numbers.numpy()}, rules)
    found = search_hypotheses(stepper, options.maximum_length, beta)
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.tokens for one in ours] == [other.tokens for other in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.cut == other.cut
            assert one.score == pytest.approx(other.score, rel=1e-5, abs=1e-4)
            terms = pytest.approx(other.token_log_probabilities, rel=1e-5, abs=1e-4)
            assert one.token_log_probabilities == terms
            np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)
