"""The Transformer against torch's own with the same weights, and against itself without a cache."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch_transformer import copy_attention, copy_decoder_layer, copy_network
from translation_samples import SIZE, make, ragged, tokens

from captioner.attention.transformer import sinusoidal_positions
from captioner.translate import Transformer, TransformerConfig


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
    config = TransformerConfig(
        embedding_size=12,
        heads=3,
        inner_size=20,
        encoder_layers=2,
        decoder_layers=3,
        norm_first=norm_first,
        final_norm=final_norm,
        dropout=0.0,
    )
    own = Transformer(config, SIZE, SIZE)
    other = nn.Transformer(12, 3, 2, 3, 20, 0.0, batch_first=True, norm_first=norm_first)
    for parameter in other.parameters():  # Norms and biases among them.
        nn.init.normal_(parameter, std=0.4)
    copy_weights(own, other)
    source, mask = ragged(6, 3, 1)
    fed = tokens(3, 1, 5)
    memory = own.remember(source, mask)
    outputs, weights, _ = own.decode(
        own.embeddings.target(fed) + sinusoidal_positions(0, 5, torch.zeros(12)),
        own.start(memory),
    )

    def placed(embedding: nn.Embedding, given: Tensor) -> Tensor:
        embedded = embedding(given) * math.sqrt(12)
        return embedded + sinusoidal_positions(0, given.shape[1], embedded)

    expected = other(
        placed(own.embeddings.source_embedding, source),
        placed(own.embeddings.target_embedding, fed[:, 0]),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5),
        src_key_padding_mask=torch.zeros(3, 6).masked_fill(~mask, float("-inf")),
        memory_key_padding_mask=torch.zeros(3, 6).masked_fill(~mask, float("-inf")),
    )
    torch.testing.assert_close(outputs[:, 0], expected, atol=1e-5, rtol=1e-4)
    assert weights.shape == (3, 1, 5, 6)


def test_alignments_are_of_the_layer_and_head_asked_for() -> None:
    model = make("transformer")
    assert isinstance(model, Transformer)
    memory = model.remember(*ragged(6, 4))
    fed = tokens(2, 1, 4)
    mean = model(memory, fed)
    heads = []
    for head in range(3):
        model.config = model.config.replace(alignment_head=head)
        one = model(memory, fed)
        torch.testing.assert_close(one.logits, mean.logits)
        heads.append(one.weights)
    assert not torch.allclose(heads[0], heads[1])
    torch.testing.assert_close(torch.stack(heads).mean(dim=0), mean.weights)
    model.config = model.config.replace(alignment_head=None, alignment_layer=0)
    assert not torch.allclose(model(memory, fed).weights, mean.weights)
    model.config = model.config.replace(alignment_layer=1)  # the last
    torch.testing.assert_close(model(memory, fed).weights, mean.weights)


def test_positions_by_numbers() -> None:
    codes = sinusoidal_positions(1, 2, torch.zeros(4))
    expected = [[math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in (1, 2)]
    assert codes.tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
    assert sinusoidal_positions(0, 3, torch.zeros(6)).shape == (3, 6)


def test_tied_embeddings_are_one_matrix() -> None:
    model = make("transformer, post-norm")  # tied with both
    names = [name for name, _ in model.named_parameters() if name.startswith("embeddings")]
    assert names == ["embeddings.output_bias", "embeddings.target_embedding.weight"]
    before = model.remember(tokens(1, 3)).values
    with torch.no_grad():
        model.embeddings.target_embedding.weight[4:].add_(1.0)
    assert not torch.allclose(before, model.remember(tokens(1, 3)).values)
