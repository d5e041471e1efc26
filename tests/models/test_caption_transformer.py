"""The Transformer as a caption decoder: against torch's, step by step, saved."""

from typing import Any

import pytest
import torch
from caption_samples import MEMORY, WORDS, captions, photos, stepped
from torch import nn
from torch_transformer import copy_decoder_layer

from captioner.attention.transformer import sinusoidal_positions
from captioner.models.caption_config import TransformerDecoderConfig
from captioner.models.caption_transformer import TransformerDecoder


def make(**options: Any) -> TransformerDecoder:
    """A decoder in evaluation mode, with weights far from zero."""
    torch.manual_seed(0)
    sizes = {"embedding_size": 12, "heads": 3, "inner_size": 20, "layers": 2, "memory_size": MEMORY}
    decoder = TransformerDecoder(TransformerDecoderConfig(**{**sizes, **options}), WORDS)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.4)
    return decoder.double().eval()


@torch.no_grad()
def test_it_is_torchs_with_the_same_weights() -> None:
    own = make(layers=3)
    layer = nn.TransformerDecoderLayer(12, 3, 20, 0.0, batch_first=True, norm_first=True)
    other = nn.TransformerDecoder(layer, 3, nn.LayerNorm(12)).double().eval()
    for parameter in other.parameters():
        nn.init.normal_(parameter, std=0.4)
    for mine, theirs in zip(own.stack, other.layers, strict=True):
        copy_decoder_layer(mine, theirs)
    own.norm.load_state_dict(other.norm.state_dict())
    words = captions()[:, 0]  # (B, T)
    memory = own.remember(photos())
    forced = own(memory, words.unsqueeze(1))
    embedded = own.embedding(words)
    embedded = embedded + sinusoidal_positions(0, words.shape[1], embedded)
    causal = nn.Transformer.generate_square_subsequent_mask(words.shape[1]).double()
    expected = own.output(other(embedded, memory.values, causal))
    torch.testing.assert_close(forced.logits[:, 0], expected)
    normed = nn.functional.layer_norm(own.annotation(photos()), (12,))
    normed = normed * own.annotation_norm.weight + own.annotation_norm.bias
    torch.testing.assert_close(memory.values, normed)


@torch.no_grad()
@pytest.mark.parametrize("map_layer", [-1, 0])
def test_stepping_equals_forcing_and_a_map_is_the_mean_of_heads(map_layer: int) -> None:
    decoder, words = make(map_layer=map_layer), captions(rows=2)
    memory, seen = decoder.remember(photos()), []
    hook = decoder.stack[map_layer].cross_attention.register_forward_hook(  # type: ignore[union-attr]
        lambda module, inputs, output: seen.append(output.weights)
    )
    forced = decoder(memory, words)
    hook.remove()
    torch.testing.assert_close(forced.weights.flatten(1, 2), seen[0].mean(dim=1))
    torch.testing.assert_close(stepped(decoder, memory, words), forced)
