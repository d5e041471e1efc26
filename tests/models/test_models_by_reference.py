"""The models by their papers' equations, and their parts and the Transformer by torch's own."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_transformer import copy_attention, copy_decoder_layer, copy_network
from translation_samples import SIZE, make, ragged, tokens

from captioner.attention.memory import Memory
from captioner.attention.transformer import sinusoidal_positions
from captioner.models.transformer import Transformer
from captioner.models.translation_config import TransformerConfig
from captioner.models.translation_model import Embeddings, FedCell

PARTS = "weight_ih", "weight_hh", "bias_ih", "bias_hh"


def softmax(scores: list[Tensor]) -> Tensor:
    return torch.stack(scores).softmax(dim=0)


def torch_cell(kind: str, weights: Any) -> nn.Module:
    hidden, size = weights[1].shape[1], weights[0].shape[1]
    cell = (nn.GRUCell if kind == "gru" else nn.LSTMCell)(size, hidden)
    for name, weight in zip(PARTS, weights, strict=True):
        getattr(cell, name).copy_(weight)
    return cell


def cell_weights(cell: FedCell) -> Any:
    """The weights of a cell in torch's order."""
    known = cell.known.weight
    inputs = known if cell.fed is None else torch.cat([known, cell.fed.weight], dim=1)
    return inputs, cell.hidden.weight, cell.known.bias, cell.hidden.bias


@pytest.mark.parametrize("name", ["bahdanau", "bahdanau, new state"])
@torch.no_grad()
def test_bahdanau(name: str) -> None:
    """Appendix A.1.2 and A.2.2, with torch's GRU."""
    model: Any = make(name)
    source, fed = tokens(1, 4), tokens(1, 1, 3)
    annotations = model.encoder.network(model.embeddings.source(source)[0])[0]  # (S, 2H)
    score, gru = model.attention.score, torch_cell("gru", cell_weights(model.cell))
    state = torch.tanh(model.initial.weight @ annotations[0, 12:])  # s_0, of the backward half
    said = model(model.remember(source), fed)
    for time, token in enumerate(fed[0, 0]):
        query = score.query_projection.weight @ state
        keys = [score.key_projection.weight @ h for h in annotations]
        weights = softmax([score.energy.weight[0] @ torch.tanh(query + key) for key in keys])
        context = weights @ annotations
        word = model.embeddings.target_embedding.weight[token]
        after = gru(torch.cat([word, context]), state)
        seen = state if name == "bahdanau" else after
        before = model.output_word.weight @ word + model.output_word.bias
        before = before + model.output_hidden.weight @ seen + model.output_context.weight @ context
        largest = torch.stack([before[2 * j : 2 * j + 2].max() for j in range(len(before) // 2)])
        logits = model.embeddings.logits(largest)
        torch.testing.assert_close(said.logits[0, 0, time], logits)
        torch.testing.assert_close(said.weights[0, 0, time], weights)
        state = after


def luong_scores(model: Any, query: Tensor, outputs: Tensor) -> list[Tensor]:
    """Equation 8."""
    score = model.attention.score
    if model.config.score == "dot":
        return [query @ h for h in outputs]
    if model.config.score == "general":
        return [query @ (score.key_projection.weight @ h) for h in outputs]
    joined = torch.cat([score.query_projection.weight, score.key_projection.weight], dim=1)
    return [score.energy.weight[0] @ torch.tanh(joined @ torch.cat([query, h])) for h in outputs]


@pytest.mark.parametrize("name", ["dot", "general", "concat", "dot, not fed", "concat, not fed"])
@torch.no_grad()
def test_luong_global(name: str) -> None:
    model: Any = make(name)
    kind, is_fed, layers = model.config.cell, model.config.input_feeding, range(model.config.layers)
    source, fed = tokens(1, 4), tokens(1, 1, 3)
    outputs, final = model.encoder.network(model.embeddings.source(source))
    final = (final,) if kind == "gru" else final  # (directions * layers, 1, H) each
    if model.config.bidirectional:
        final = [torch.cat([each[0::2], each[1::2]], dim=-1) for each in final]
    states = [[each[layer, 0] for each in final] for layer in layers]
    if is_fed:
        given = map(cell_weights, model.cells)
    else:
        network = model.decoder.network
        given = [[getattr(network, f"{part}_l{layer}") for part in PARTS] for layer in layers]
    cells = [torch_cell(kind, each) for each in given]
    attentional = torch.zeros(12)
    said = model(model.remember(source), fed)
    for time, token in enumerate(fed[0, 0]):
        vector = model.embeddings.target_embedding.weight[token]
        if is_fed:
            vector = torch.cat([vector, attentional])
        for layer, cell in enumerate(cells):
            after = cell(vector, states[layer][0] if kind == "gru" else tuple(states[layer]))
            states[layer] = [after] if kind == "gru" else list(after)
            vector = states[layer][0]
        weights = softmax(luong_scores(model, vector, outputs[0]))
        context = weights @ outputs[0]
        attentional = torch.tanh(model.combined.weight @ torch.cat([context, vector]))  # eq. 5
        torch.testing.assert_close(said.weights[0, 0, time], weights)
        logits = model.embeddings.output(attentional)  # eq. 6
        torch.testing.assert_close(said.logits[0, 0, time], logits)


@torch.no_grad()
def test_monotonic_attention_looks_around_the_word_of_the_same_number() -> None:
    model = make("local-m")
    weights = model(model.remember(*ragged(8, 3)), tokens(2, 1, 8)).weights[:, 0] > 0
    for time in range(8):
        long = [abs(place - time) <= 2 for place in range(8)]
        short = [place < 3 and abs(place - min(time, 3)) <= 2 for place in range(8)]
        assert weights[:, time].tolist() == [long, short]


@torch.no_grad()
def test_predictive_attention_looks_around_a_predicted_place() -> None:
    model: Any = make("local-p, not fed")
    memory = model.remember(*ragged(8, 5))
    fed = tokens(2, 1, 4)
    said = model(memory, fed)
    hidden, _ = model.decoder(model.embeddings.target(fed), model.start(memory)[1])
    for source, length in enumerate((8, 5)):
        for time in range(4):
            query = hidden[source, 0, time]
            inside = model.centre.energy.weight @ torch.tanh(model.centre.projection.weight @ query)
            centre = length * torch.sigmoid(inside).item()  # eq. 9
            window = [s for s in range(length) if abs(s - centre) <= 2]
            align = softmax([query @ memory.keys[source, s] for s in window])
            distances = torch.tensor([s - centre for s in window])
            expected = torch.zeros(8)
            expected[window] = align * torch.exp(-distances.square() / 2)  # eq. 10, sigma = 1
            torch.testing.assert_close(said.weights[source, 0, time], expected)


@torch.no_grad()
def test_gnmt() -> None:
    """Sections 3 and 3.1: four layers, residual connections around the third and fourth."""
    model: Any = make("gnmt")
    source, fed = tokens(1, 4), tokens(1, 1, 3)
    outputs, (hidden, cell) = model.bottom_encoder.network(model.embeddings.source(source))
    states = [(hidden[1:2], cell[1:2])]  # of the backward direction
    for layer, encoder in enumerate(model.encoders, start=2):
        above, own = encoder.network(outputs)
        outputs = above + outputs if layer >= 3 else above
        states.append(own)
    memory = model.remember(source)
    torch.testing.assert_close(memory.values, outputs)
    said = model(memory, fed)
    lstm = torch_cell("lstm", cell_weights(model.bottom_decoder))
    assert (model.bottom_decoder.known.bias[12:24] == 1).all()  # An open forget gate.
    bottom = [each[0, 0] for each in states[0]]
    keys = [Memory(key, key) for key in memory.keys.split(1, dim=1)]
    for time, token in enumerate(fed[0, 0]):
        query = bottom[0][None, None]  # The bottom layer's output of the step before.
        weights = softmax([model.attention.score(query, key)[0, 0, 0] for key in keys])
        context = weights @ outputs[0]
        word = model.embeddings.target_embedding.weight[token]
        bottom = lstm(torch.cat([word, context]), tuple(bottom))
        vector = bottom[0]
        for layer, decoder in enumerate(model.decoders, start=2):
            inputs = torch.cat([vector, context])[None, None]
            above, states[layer - 1] = decoder.network(inputs, states[layer - 1])
            vector = above[0, 0] + vector if layer >= 3 else above[0, 0]
        torch.testing.assert_close(said.weights[0, 0, time], weights)
        torch.testing.assert_close(said.logits[0, 0, time], model.embeddings.output(vector))


@pytest.mark.parametrize("name", ["gru", "lstm"])
@torch.no_grad()
def test_without_attention_the_last_state_is_all_there_is(name: str) -> None:
    model: Any = make(name)
    source, fed = tokens(1, 5), tokens(1, 1, 3)
    _, final = model.encoder.network(model.embeddings.source(source.flip(1)))
    hidden, _ = model.decoder.network(model.embeddings.target(fed)[0], final)
    memory = model.remember(source)
    said = model(memory, fed)
    torch.testing.assert_close(said.logits[0], model.embeddings.logits(hidden))
    assert memory.length == said.weights.mean() == 1


def test_embeddings_but_not_logits_are_scaled_by_the_root_of_their_size() -> None:
    given, vectors = torch.tensor([[4, 5, 4]]), torch.randn(2, 16)
    for scale, factor in ((False, 1.0), (True, 4.0)):
        embeddings = Embeddings(8, 8, 16, 16, "all", scale)
        table = embeddings.target_embedding.weight
        for embed in (embeddings.source, embeddings.target):
            assert torch.equal(embed(given)[0], table[given[0]] * factor)
        assert torch.allclose(embeddings.logits(vectors), vectors @ table.T, atol=1e-5)


# The Transformer


@torch.no_grad()
def copy_weights(own: Transformer, other: nn.Transformer) -> None:
    for layer, from_layer in zip(own.encoder, other.encoder.layers, strict=True):
        copy_attention(layer.self_attention, from_layer.self_attn)
        copy_network(layer.feed_forward, from_layer)
        layer.around_attention.norm.load_state_dict(from_layer.norm1.state_dict())
        layer.around_network.norm.load_state_dict(from_layer.norm2.state_dict())
    for layer, from_layer in zip(own.decoder, other.decoder.layers, strict=True):
        copy_decoder_layer(layer, from_layer)
    if own.config.final_norm:
        own.encoder_norm.load_state_dict(other.encoder.norm.state_dict())
        own.decoder_norm.load_state_dict(other.decoder.norm.state_dict())
    else:
        other.encoder.norm = other.decoder.norm = None


@pytest.mark.parametrize("final_norm", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_it_is_torchs_with_the_same_weights(norm_first: bool, final_norm: bool) -> None:
    torch.manual_seed(0)
    sizes: Any = {"embedding_size": 12, "heads": 3, "inner_size": 20, "dropout": 0.0}
    sizes |= {"encoder_layers": 2, "decoder_layers": 3}
    config = TransformerConfig(norm_first=norm_first, final_norm=final_norm, **sizes)
    own = Transformer(config, SIZE, SIZE)
    other = nn.Transformer(12, 3, 2, 3, 20, 0.0, batch_first=True, norm_first=norm_first)
    for parameter in other.parameters():  # Norms and biases among them.
        nn.init.normal_(parameter, std=0.4)
    copy_weights(own, other)
    source, mask = ragged(6, 3, 1)
    fed = tokens(3, 1, 5)
    forced = own(own.remember(source, mask), fed)

    def placed(embedding: nn.Embedding, given: Tensor) -> Tensor:
        embedded = embedding(given) * math.sqrt(12)
        return embedded + sinusoidal_positions(0, given.shape[1], embedded)

    padding = torch.zeros(3, 6).masked_fill(~mask, float("-inf"))
    expected = other(
        placed(own.embeddings.source_embedding, source),
        placed(own.embeddings.target_embedding, fed[:, 0]),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    logits = own.embeddings.logits(expected)
    torch.testing.assert_close(forced.logits[:, 0], logits, atol=1e-5, rtol=1e-4)
    assert forced.weights.shape == (3, 1, 5, 6)


def test_positions_by_numbers() -> None:
    codes = sinusoidal_positions(1, 2, torch.zeros(4))
    expected = [[math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in (1, 2)]
    assert codes.tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
