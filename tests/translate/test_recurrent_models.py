"""The recurrent models by their papers' equations, their parts by torch's own."""

import pytest
import torch
from torch import Tensor
from translation_samples import make, ragged, tokens

from captioner.attention.memory import Memory
from captioner.translate.bahdanau import Bahdanau
from captioner.translate.gnmt import GNMT
from captioner.translate.luong import Luong
from captioner.translate.model import Embeddings
from captioner.translate.recurrent import (
    FedCell,
    RecurrentEncoder,
    SequenceToSequence,
    reverse_tokens,
)


def linear(layer: torch.nn.Module, vector: Tensor) -> Tensor:
    """W x + b with a layer's own weights."""
    bias = layer.bias
    found = layer.weight @ vector
    return found if bias is None else found + bias


def softmax(scores: list[Tensor]) -> Tensor:
    return torch.softmax(torch.stack(scores), dim=0)


@pytest.mark.parametrize("name", ["bahdanau", "bahdanau, new state"])
@torch.no_grad()
def test_bahdanau(name: str) -> None:
    """Appendix A.1.2 and A.2.2, with torch's GRU."""
    model = make(name)
    assert isinstance(model, Bahdanau)
    source, fed = tokens(1, 4), tokens(1, 1, 3)
    annotations = model.encoder.network(model.embeddings.source(source)[0])[0]  # (S, 2H)
    score, cell = model.attention.score, model.cell
    gru = torch.nn.GRUCell(8 + 24, 12)
    gru.weight_ih.copy_(torch.cat([cell.known.weight, cell.fed.weight], dim=1))
    gru.bias_ih.copy_(cell.known.bias)
    gru.weight_hh.copy_(cell.hidden.weight)
    gru.bias_hh.copy_(cell.hidden.bias)
    state = torch.tanh(model.initial.weight @ annotations[0, 12:])  # s_0, of the backward half
    said = model(model.remember(source), fed)
    for time, token in enumerate(fed[0, 0]):
        energies = [
            score.energy.weight[0]
            @ torch.tanh(score.query_projection.weight @ state + score.key_projection.weight @ h)
            for h in annotations
        ]
        weights = softmax(energies)
        context = weights @ annotations
        word = model.embeddings.target_embedding.weight[token]
        after = gru(torch.cat([word, context]), state)
        seen = state if name == "bahdanau" else after
        before = linear(model.output_word, word)
        before = before + model.output_hidden.weight @ seen + model.output_context.weight @ context
        largest = torch.stack([before[2 * j : 2 * j + 2].max() for j in range(len(before) // 2)])
        logits = model.embeddings.logits(largest)
        torch.testing.assert_close(said.logits[0, 0, time], logits)
        torch.testing.assert_close(said.weights[0, 0, time], weights)
        state = after


def luong_scores(model: Luong, query: Tensor, outputs: Tensor) -> list[Tensor]:
    """Equation 8."""
    score, kind = model.attention.score, model.config.score
    if kind == "dot":
        return [query @ h for h in outputs]
    if kind == "general":
        return [query @ (score.key_projection.weight @ h) for h in outputs]
    joined = torch.cat([score.query_projection.weight, score.key_projection.weight], dim=1)
    return [score.energy.weight[0] @ torch.tanh(joined @ torch.cat([query, h])) for h in outputs]


@pytest.mark.parametrize("name", ["dot", "general", "concat", "dot, not fed", "concat, not fed"])
@torch.no_grad()
def test_luong_global(name: str) -> None:
    model = make(name)
    assert isinstance(model, Luong)
    source, fed = tokens(1, 4), tokens(1, 1, 3)
    outputs, final = model.encoder(model.embeddings.source(source))
    states = [[each[0, layer] for each in final] for layer in range(model.config.layers)]
    fed_back = torch.zeros(12)
    said = model(model.remember(source), fed)
    for time, token in enumerate(fed[0, 0]):
        vector = model.embeddings.target_embedding.weight[token]
        for layer in range(model.config.layers):
            vector = _one_step(model, layer, vector, fed_back, states)
        weights = softmax(luong_scores(model, vector, outputs[0]))
        context = weights @ outputs[0]
        attentional = torch.tanh(model.combined.weight @ torch.cat([context, vector]))  # eq. 5
        torch.testing.assert_close(said.weights[0, 0, time], weights)
        logits = linear(model.embeddings.output, attentional)  # eq. 6
        torch.testing.assert_close(said.logits[0, 0, time], logits)
        if model.config.input_feeding:
            fed_back = attentional


def _one_step(
    model: Luong, layer: int, vector: Tensor, fed_back: Tensor, states: list[list[Tensor]]
) -> Tensor:
    """One layer's new state, written into `states`, by torch's own cells."""
    gru = model.config.cell == "gru"
    make_cell = torch.nn.GRUCell if gru else torch.nn.LSTMCell
    if model.config.input_feeding:
        own = model.cells[layer]
        vector = torch.cat([vector, fed_back]) if layer == 0 else vector
        parts = [own.known.weight] + ([own.fed.weight] if layer == 0 else [])
        weights = torch.cat(parts, dim=1), own.hidden.weight, own.known.bias, own.hidden.bias
    else:
        network = model.decoder.network
        weights = tuple(
            getattr(network, f"{part}_l{layer}")
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
    cell = make_cell(len(vector), 12)
    for name, weight in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True):
        getattr(cell, name).copy_(weight)
    after = cell(vector, states[layer][0] if gru else tuple(states[layer]))
    states[layer] = [after] if gru else list(after)
    return states[layer][0]


@torch.no_grad()
def test_monotonic_attention_looks_around_the_word_of_the_same_number() -> None:
    model = make("local-m")
    weights = model(model.remember(*ragged(8, 3)), tokens(2, 1, 8)).weights[:, 0] > 0
    for time in range(8):
        long = [abs(place - time) <= 2 for place in range(8)]
        short = [place < 3 and abs(place - min(time, 3)) <= 2 for place in range(8)]
        assert weights[0, time].tolist() == long
        assert weights[1, time].tolist() == short


@torch.no_grad()
def test_predictive_attention_looks_around_a_predicted_place() -> None:
    model = make("local-p, not fed")
    assert isinstance(model, Luong)
    memory = model.remember(*ragged(8, 5))
    fed = tokens(2, 1, 4)
    said = model(memory, fed)
    hidden, _ = model.decoder(model.embeddings.target(fed), model.start(memory).recurrent)
    for source, length in enumerate((8, 5)):
        for time in range(4):
            query = hidden[source, 0, time]
            inside = model.centre.energy.weight @ torch.tanh(model.centre.projection.weight @ query)
            centre = length * torch.sigmoid(inside).item()  # eq. 9
            window = [s for s in range(length) if abs(s - centre) <= 2]
            keys = memory.keys[source]
            align = softmax([query @ keys[s] for s in window])
            distances = torch.tensor([s - centre for s in window])
            expected = torch.zeros(8)
            expected[window] = align * torch.exp(-distances.square() / 2)  # eq. 10, sigma = 1
            torch.testing.assert_close(said.weights[source, 0, time], expected)


@torch.no_grad()
def test_gnmt() -> None:
    """Sections 3 and 3.1: four layers, residual connections around the third and fourth."""
    model = make("gnmt")
    assert isinstance(model, GNMT)
    source, fed = tokens(1, 4), tokens(1, 1, 3)
    outputs, (hidden, cell) = model.bottom_encoder.network(model.embeddings.source(source))
    assert outputs.shape == (1, 4, 24)
    states = [(hidden[1:2], cell[1:2])]  # of the backward direction
    for layer, encoder in enumerate(model.encoders, start=2):
        above, own = encoder.network(outputs)
        outputs = above + outputs if layer >= 3 else above
        states.append(own)
    memory = model.remember(source)
    torch.testing.assert_close(memory.values, outputs)
    said = model(memory, fed)
    bottom = [each[0, 0] for each in states[0]]
    for time, token in enumerate(fed[0, 0]):
        weights = softmax(
            [
                model.attention.score(bottom[0][None, None], Memory(key, key))[0, 0, 0]
                for key in memory.keys.split(1, dim=1)
            ]
        )  # a_i, of the bottom layer's output of the step before
        context = weights @ outputs[0]
        vector = model.embeddings.target_embedding.weight[token]
        ahead = model.bottom_decoder.project_input(vector)
        bottom = list(model.bottom_decoder(ahead, context, tuple(bottom)))
        vector = bottom[0]
        for layer, decoder in enumerate(model.decoders, start=2):
            above, states[layer - 1] = decoder.network(
                torch.cat([vector, context])[None, None], states[layer - 1]
            )
            vector = above[0, 0] + vector if layer >= 3 else above[0, 0]
        torch.testing.assert_close(said.weights[0, 0, time], weights)
        torch.testing.assert_close(said.logits[0, 0, time], linear(model.embeddings.output, vector))


@torch.no_grad()
@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_without_attention_the_last_state_is_all_there_is(name: str) -> None:
    model = make(name)
    assert isinstance(model, SequenceToSequence)
    source = tokens(1, 5)
    _, final = model.encoder.network(model.embeddings.source(source.flip(1)))
    fed = tokens(1, 1, 3)
    hidden, _ = model.decoder.network(model.embeddings.target(fed)[0], final)
    memory = model.remember(source)
    assert memory.length == 1
    said = model(memory, fed)
    torch.testing.assert_close(said.logits[0], model.embeddings.logits(hidden))
    assert (said.weights == 1).all()


@pytest.mark.parametrize(("scale", "factor"), [(False, 1.0), (True, 4.0)])
def test_embeddings_are_scaled_by_the_root_of_their_size(scale: bool, factor: float) -> None:
    embeddings = Embeddings(8, 8, 16, 16, "all", scale)
    given = torch.tensor([[4, 5, 4]])
    table = embeddings.target_embedding.weight
    assert torch.equal(embeddings.source(given)[0], table[given[0]] * factor)
    assert torch.equal(embeddings.target(given)[0], table[given[0]] * factor)
    vectors = torch.randn(2, 16)
    logits = embeddings.logits(vectors)  # The output layer, of the same matrix, is not scaled.
    assert torch.allclose(logits, vectors @ table.T, atol=1e-5)


def test_an_lstm_starts_with_an_open_forget_gate() -> None:
    assert FedCell("lstm", 2, 2, 3).known.bias[3:6].tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_encoder_is_torchs_sentence_by_sentence(kind: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    size = 4 if bidirectional else 8
    encoder = RecurrentEncoder(kind, 5, size, layers=2, bidirectional=bidirectional)
    embedded = torch.randn(3, 6, 5)
    lengths = [4, 6, 1]
    mask = torch.arange(6) < torch.tensor(lengths).unsqueeze(1)
    outputs, final = encoder(embedded, mask)
    assert outputs.shape == (3, 6, 8)
    for row, length in enumerate(lengths):
        expected, own = encoder.network(embedded[row, :length])
        torch.testing.assert_close(outputs[row, :length], expected)
        assert (outputs[row, length:] == 0).all()
        for one, other in zip(final, (own,) if kind == "gru" else own, strict=True):
            joined = other if not bidirectional else torch.cat([other[0::2], other[1::2]], dim=-1)
            torch.testing.assert_close(one[row], joined)  # (layers, D)


def test_a_source_is_reversed_before_its_padding() -> None:
    given = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0]])
    assert reverse_tokens(given, given > 0).tolist() == [[2, 6, 5, 4], [2, 7, 0, 0]]
    assert reverse_tokens(given[:1], None).tolist() == [[2, 6, 5, 4]]
