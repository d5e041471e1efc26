"""A model folder: what is loaded is what was saved; and its description."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from samples import (
    Patch,
    assert_same_captions,
    confidence_weights,
    make_captioner,
    photo,
)
from torch import Tensor, nn

from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence
from captioner.caption.folder import load_model, save_confidence, save_model
from captioner.cli.models import described
from captioner.errors import UserError
from captioner.model_folders import ModelFolder
from captioner.models.caption_config import TransformerDecoderConfig
from captioner.models.caption_transformer import TransformerDecoder
from captioner.text.vocabulary import Vocabulary

FILES = {"model.safetensors", "config.json", "vocabulary.json", "README.md"}
PHOTOS = [photo(seed, (90, 80)) for seed in range(3)]


def weights_of(model: Captioner) -> dict[str, Tensor]:
    networks = model.backend
    return nn.ModuleDict({"e": networks.encoder, "d": networks.decoder}).state_dict()


def test_full_precision_comes_back_without_unpickling(tmp_path: Path, monkeypatch: Patch) -> None:
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.delattr(pickle, name)
    monkeypatch.delattr(torch, "load")
    model = make_captioner(standardise=True)
    model.backend.decoder.standardisation.fit([torch.rand(3, 196, 512)])
    save_model(model, tmp_path, torch.float32)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    loaded = load_model(tmp_path)
    torch.testing.assert_close(weights_of(loaded), weights_of(model), rtol=0, atol=0)
    expected = model.caption(PHOTOS, beam=4, n_best=3)
    assert_same_captions(loaded.caption(PHOTOS, beam=4, n_best=3), expected)
    assert loaded.backend.vocabulary == model.backend.vocabulary
    for name in ("preprocessing", "search", "card"):
        assert getattr(loaded, name) == getattr(model, name)
    assert not loaded.backend.decoder.training


def test_a_transformer_comes_back(tmp_path: Path) -> None:
    sizes = TransformerDecoderConfig(embedding_size=12, heads=3, inner_size=20, layers=2)
    model = make_captioner()
    model.backend.decoder = TransformerDecoder(sizes, 14).eval()
    save_model(model, tmp_path, torch.float32)
    loaded = load_model(tmp_path)
    assert loaded.backend.decoder.config == sizes
    assert_same_captions(loaded.caption(PHOTOS), model.caption(PHOTOS))


def test_half_precision_is_rounded_once(tiny_captioner: Captioner, tmp_path: Path) -> None:
    save_model(tiny_captioner, tmp_path / "first")
    first = load_model(tmp_path / "first")
    before, after = weights_of(tiny_captioner), weights_of(first)
    for tensor, own in zip(after.values(), before.values(), strict=True):
        assert torch.equal(tensor, own.half().float() if own.is_floating_point() else own)
    assert first.backend.encoder.digest() == tiny_captioner.backend.encoder.digest()


def test_a_confidence_is_saved_without_touching_the_weights(tmp_path: Path) -> None:
    model = make_captioner()
    model.confidence = Confidence(weights=confidence_weights(1.0, 0.5, 0.0, 0.25, -0.125))
    save_model(model, tmp_path)
    weights = tmp_path / "model.safetensors"
    content = weights.read_bytes()
    save_confidence(model.confidence.replace(unsure_below=0.4), tmp_path)
    assert load_model(tmp_path).confidence == model.confidence.replace(unsure_below=0.4)
    assert weights.read_bytes() == content
    digests = json.loads((tmp_path / "config.json").read_text())["files"]
    vocabulary = (tmp_path / "vocabulary.json").read_bytes()
    assert digests["vocabulary.json"] == hashlib.sha256(vocabulary).hexdigest()


@pytest.mark.parametrize("name", ["vocabulary.json", "model.safetensors"])
def test_files_of_two_models_are_not_mixed(tiny_model: Path, tmp_path: Path, name: str) -> None:
    other = make_captioner(standardise=True)
    other.backend.vocabulary = Vocabulary([f"w{number}" for number in range(10)])
    save_model(other, tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, tiny_model / name)
    with pytest.raises(UserError, match=rf"{name}.*(their|its) digest is another.*; (load, )?copy"):
        load_model(tiny_model)


def test_a_model_is_described_with_its_sizes_and_the_start_of_its_card(tiny_model: Path) -> None:
    card = "---\nlicense: mit\n---\n\n# A model\n\nIt sees.\n\n## Data\n\nMany photos.\n"
    (tiny_model / "README.md").write_text(card)
    captioner = load_model(tiny_model)
    lines = (text := described(ModelFolder(tiny_model), {"vocabulary": "14 words"})).splitlines()
    size = (tiny_model / "model.safetensors").stat().st_size
    assert lines[0] == f"model folder   {tiny_model}"
    assert lines[1] == f"weights        {size / 1e6:.1f} MB"
    assert lines[2] == "files          2, checked by their digests"
    assert lines[3:5] == ["vocabulary     14 words", "format         captioner caption model 1"]
    count = sum(tensor.numel() for tensor in captioner.backend.decoder.state_dict().values())
    assert {f"decoder        {count:,} weights", "  hidden_size: 12", "  beam: 3"} <= set(lines)
    assert "license" not in text
    rest = f"(the whole card: {tiny_model / 'README.md'})"
    assert text.endswith(f"\n\n# A model\n\nIt sees.\n\n{rest}")
