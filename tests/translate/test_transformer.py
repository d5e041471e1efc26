"""The Transformer against torch's own with the same weights, and against itself without a cache."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch_transformer import copy_attention, copy_decoder_layer, copy_network
from translation_samples import SIZE, ragged, tokens

from captioner.attention.transformer import sinusoidal_positions
from captioner.translate.transformer import Transformer, TransformerConfig


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
    forced = own(own.remember(source, mask), fed)

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
    logits = own.embeddings.logits(expected)
    torch.testing.assert_close(forced.logits[:, 0], logits, atol=1e-5, rtol=1e-4)
    assert forced.weights.shape == (3, 1, 5, 6)


def test_positions_by_numbers() -> None:
    codes = sinusoidal_positions(1, 2, torch.zeros(4))
    expected = [[math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in (1, 2)]
    assert codes.tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
    assert sinusoidal_positions(0, 3, torch.zeros(6)).shape == (3, 6)
