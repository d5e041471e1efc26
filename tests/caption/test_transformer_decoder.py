"""The Transformer as a caption decoder: against torch's, step by step, saved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from decoder_samples import MEMORY, PLACES, WORDS, calls_of, captions, photos, stepped
from samples import assert_same_captions, make_captioner, save_photo
from torch import nn
from torch_transformer import copy_decoder_layer

from captioner.attention.transformer import sinusoidal_positions
from captioner.caption.folder import load_model, save_model
from captioner.caption.transformer import TransformerDecoder, TransformerDecoderConfig
from captioner.decoding.constraints import Constraints
from captioner.decoding.loop import BeamSearch, decode
from captioner.decoding.protocol import select_rows

SIZES: dict[str, Any] = {
    "embedding_size": 12,
    "heads": 3,
    "inner_size": 20,
    "layers": 2,
    "memory_size": MEMORY,
}


def make(**options: Any) -> TransformerDecoder:
    """A decoder in evaluation mode, with weights far from zero."""
    torch.manual_seed(0)
    decoder = TransformerDecoder(TransformerDecoderConfig(**{**SIZES, **options}), WORDS)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.4)
    return decoder.eval()


@torch.no_grad()
def test_it_is_torchs_with_the_same_weights() -> None:
    own = make(layers=3)
    layer = nn.TransformerDecoderLayer(12, 3, 20, 0.0, batch_first=True, norm_first=True)
    other = nn.TransformerDecoder(layer, 3, nn.LayerNorm(12)).eval()
    for parameter in other.parameters():
        nn.init.normal_(parameter, std=0.4)
    for mine, theirs in zip(own.stack, other.layers, strict=True):
        copy_decoder_layer(mine, theirs)
    own.norm.load_state_dict(other.norm.state_dict())
    words = captions()[:, 0]  # (B, T)
    memory = own.remember(photos())
    forced = own(memory, words.unsqueeze(1))
    embedded = own.embedding(words)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    expected = other(embedded + sinusoidal_positions(0, 4, embedded), memory.values, causal)
    torch.testing.assert_close(forced.logits[:, 0], own.output(expected), atol=1e-5, rtol=1e-4)
    normed = nn.functional.layer_norm(own.annotation(photos()), (12,))
    normed = normed * own.annotation_norm.weight + own.annotation_norm.bias
    torch.testing.assert_close(memory.values, normed)


@torch.no_grad()
@pytest.mark.parametrize("map_layer", [-1, 0])
def test_teacher_forcing_equals_stepping(map_layer: int) -> None:
    decoder, words = make(map_layer=map_layer), captions(rows=2)
    memory = decoder.remember(photos())
    torch.testing.assert_close(stepped(decoder, memory, words), decoder(memory, words))
    start = decoder.start(memory)
    selected = select_rows(start, torch.zeros(3, 2, dtype=torch.long))
    pairs = zip(selected.sources, start.sources, strict=True)
    assert all(one is other for one, other in pairs)


@torch.no_grad()
def test_a_map_is_the_mean_of_the_heads_of_its_layer() -> None:
    decoder, words = make(), captions()
    memory = decoder.remember(photos())
    seen = []
    decoder.stack[-1].cross_attention.register_forward_hook(  # type: ignore[union-attr]
        lambda module, inputs, output: seen.append(output.weights)
    )
    forced = decoder(memory, words)
    torch.testing.assert_close(forced.weights[:, 0], seen[0].mean(dim=1))
    assert forced.weights.shape == (3, 1, 4, PLACES)
    torch.testing.assert_close(forced.weights.sum(dim=-1), torch.ones(3, 1, 4))
    first = make(map_layer=0)
    assert not torch.allclose(first(memory, words).weights, forced.weights)
    torch.testing.assert_close(first(memory, words).logits, forced.logits)


@torch.no_grad()
def test_a_beam_projects_the_annotation_vectors_once_a_layer() -> None:
    decoder = make()
    seen = [calls_of(layer.cross_attention.key_projection) for layer in decoder.stack]
    memory = decoder.remember(photos())
    limits = Constraints(minimum_length=5, maximum_length=5)
    decode(decoder, memory, start=1, end=2, strategy=BeamSearch(4), constraints=limits)
    assert seen == [[(3, PLACES, 12)]] * 2


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    captioner = replace(make_captioner(words="abcdefg"), decoder=make(memory_size=512))
    save_model(captioner, tmp_path / "model", torch.float32)
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded.decoder, TransformerDecoder)
    assert loaded.decoder.config == captioner.decoder.config
    files = [save_photo(tmp_path / f"{seed}.png", seed) for seed in range(3)]
    found, expected = (each.caption(files, n_best=2) for each in (loaded, captioner))
    assert_same_captions(found, expected)
    assert found[0].attention.shape[1:] == (4, 4)
