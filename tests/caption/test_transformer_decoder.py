"""The Transformer as a caption decoder: against torch's, step by step, saved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from caption_samples import MEMORY, PLACES, WORDS, calls_of, captions, photos, stepped
from samples import assert_same_captions, make_captioner, photo
from torch import nn
from torch_transformer import copy_decoder_layer

from captioner.attention.transformer import sinusoidal_positions
from captioner.caption.folder import load_model, save_model
from captioner.caption.transformer import TransformerDecoder, TransformerDecoderConfig
from captioner.decoding.constraints import Constraints
from captioner.decoding.loop import BeamSearch, decode


def make(words: int = WORDS, **options: Any) -> TransformerDecoder:
    """A decoder in evaluation mode, with weights far from zero."""
    torch.manual_seed(0)
    sizes = {"embedding_size": 12, "heads": 3, "inner_size": 20, "layers": 2, "memory_size": MEMORY}
    decoder = TransformerDecoder(TransformerDecoderConfig(**{**sizes, **options}), words)
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
def test_stepping_equals_forcing_and_a_map_is_the_mean_of_its_layers_heads(map_layer: int) -> None:
    decoder, words = make(map_layer=map_layer), captions(rows=2)
    memory, seen = decoder.remember(photos()), []
    hook = decoder.stack[map_layer].cross_attention.register_forward_hook(  # type: ignore[union-attr]
        lambda module, inputs, output: seen.append(output.weights)
    )
    forced = decoder(memory, words)
    hook.remove()
    torch.testing.assert_close(forced.weights.flatten(1, 2), seen[0].mean(dim=1))
    torch.testing.assert_close(stepped(decoder, memory, words), forced)


@torch.no_grad()
def test_a_beam_projects_the_annotation_vectors_once_a_layer() -> None:
    decoder = make()
    seen = [calls_of(layer.cross_attention.key_projection) for layer in decoder.stack]
    memory = decoder.remember(photos())
    limits = Constraints(minimum_length=5, maximum_length=5)
    decode(decoder, memory, start=1, end=2, strategy=BeamSearch(4), constraints=limits)
    assert seen == [[(3, PLACES, 12)]] * 2


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    captioner = replace(make_captioner(), decoder=make(14, memory_size=512).float())
    save_model(captioner, tmp_path / "model", torch.float32)
    loaded = load_model(tmp_path / "model")
    assert loaded.decoder.config == captioner.decoder.config
    found, expected = (each.caption([photo(1), photo(2)], n_best=2) for each in (loaded, captioner))
    assert_same_captions(found, expected)
