"""A model folder: what is loaded is what was saved; and its description."""

import pickle
from pathlib import Path

import pytest
import torch
from folder_samples import config_of
from safetensors import SafetensorError
from samples import assert_same_captions, make_captioner, photo
from torch import Tensor, nn

from captioner import weight_files
from captioner.caption.captioner import Captioner
from captioner.caption.folder import describe, load_model, save_model
from captioner.decoding.constraints import ngram_keys
from captioner.devices import choose_device
from captioner.errors import UserError
from captioner.text.ngrams import PeoplesNgrams

FILES = {"model.safetensors", "config.json", "vocabulary.json", "README.md"}
PHOTOS = [photo(seed, (90, 80)) for seed in range(3)]


def weights_of(model: Captioner) -> dict[str, Tensor]:
    return nn.ModuleDict({"encoder": model.encoder, "decoder": model.decoder}).state_dict()


@pytest.mark.parametrize("standardise", [False, True])
def test_full_precision_comes_back_as_it_was(tmp_path: Path, standardise: bool) -> None:
    model = make_captioner(standardise=standardise)
    if standardise:
        model.decoder.standardisation.fit([torch.rand(3, 196, 512)])
    save_model(model, tmp_path / "model", torch.float32)
    loaded = load_model(tmp_path / "model")
    before, after = weights_of(model), weights_of(loaded)
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())
    expected = model.caption(PHOTOS, beam=4, n_best=3)
    assert_same_captions(loaded.caption(PHOTOS, beam=4, n_best=3), expected)


def test_half_precision_is_rounded_once(tiny_captioner: Captioner, tmp_path: Path) -> None:
    tiny_captioner.card = ""
    save_model(tiny_captioner, tmp_path / "first")
    first = load_model(tmp_path / "first")
    before, after = weights_of(tiny_captioner), weights_of(first)
    for name, tensor in after.items():
        assert tensor.dtype == before[name].dtype
        if tensor.is_floating_point():
            assert torch.equal(tensor, before[name].half().float())
    found, expected = first.caption(PHOTOS), tiny_captioner.caption(PHOTOS)
    assert [caption.text for caption in found] == [caption.text for caption in expected]
    assert first.encoder.digest() == tiny_captioner.encoder.digest()
    save_model(first, tmp_path / "second")
    for name in FILES - {"README.md"}:
        assert (tmp_path / "second" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
    assert not (tmp_path / "second" / "README.md").exists()


def test_everything_but_the_weights_comes_back_without_unpickling(
    tiny_captioner: Captioner, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {path.name for path in tiny_model.iterdir()} == FILES
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.delattr(pickle, name)
    monkeypatch.delattr(torch, "load")
    loaded = load_model(tiny_model)
    for name in ("vocabulary", "preprocessing", "search", "card"):
        assert getattr(loaded, name) == getattr(tiny_captioner, name)
    assert loaded.encoder.config == tiny_captioner.encoder.config
    assert loaded.decoder.config == tiny_captioner.decoder.config
    assert not loaded.encoder.training
    assert not loaded.decoder.training
    assert all(parameter.requires_grad for parameter in loaded.decoder.parameters())
    # As convolutions on a CPU are quickest.
    convolution = loaded.encoder.features[0].weight
    assert convolution.dtype == torch.float32
    assert convolution.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("error", [SafetensorError("No space left"), OSError(28, "No space left")])
def test_a_full_disk_leaves_the_model_that_was_there(
    tiny_captioner: Captioner, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half of it")
        raise error

    before = load_model(tiny_model).caption(PHOTOS)
    with torch.no_grad():
        tiny_captioner.decoder.output.bias += 1
    monkeypatch.setattr(weight_files, "save_file", full)
    with pytest.raises(UserError, match=r"cannot write .*model\.safetensors: No space left"):
        save_model(tiny_captioner, tiny_model)
    assert {path.name for path in tiny_model.iterdir()} == FILES
    assert load_model(tiny_model).caption(PHOTOS) == before


def test_a_model_saved_before_a_field_was_there_loads(
    tiny_captioner: Captioner, tiny_model: Path
) -> None:
    with config_of(tiny_model) as config:
        for field in ("standardise", "temperature"):
            del config["decoder"][field]
        del config["search"]["repeat_distance"]
    assert load_model(tiny_model).decoder.config == tiny_captioner.decoder.config


def test_a_model_that_knows_ngrams_keeps_to_them(tiny_captioner: Captioner, tmp_path: Path) -> None:
    people = PeoplesNgrams([["a", "red", "dog", "runs"], ["the", "two", "brown", "dog"]])
    ngrams = torch.tensor(people.token_ngrams(tiny_captioner.vocabulary, 4))
    size = len(tiny_captioner.vocabulary)
    tiny_captioner.ngrams = ngram_keys(ngrams.unbind(dim=1), size)
    save_model(tiny_captioner, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.ngrams is not None
    assert torch.equal(loaded.ngrams, tiny_captioner.ngrams)
    possible = {"A red dog runs.", "The two brown dog runs.", "A red dog.", "The two brown dog."}
    assert {caption.text for caption in loaded.caption(PHOTOS)} <= {
        text.rstrip(".").lower() for text in possible
    }


def test_a_model_is_described_with_its_sizes_and_the_start_of_its_card(tiny_model: Path) -> None:
    card = "---\nlicense: mit\n---\n\n# A model\n\nIt sees.\n\n## Data\n\nMany photos.\n"
    (tiny_model / "README.md").write_text(card)
    captioner = load_model(tiny_model)
    described = describe(captioner, tiny_model)
    lines = described.splitlines()
    size = (tiny_model / "model.safetensors").stat().st_size
    assert lines[:4] == [
        f"model folder   {tiny_model}",
        f"weights        {size / 1e6:.1f} MB, checked: as when saved, by digest",
        f"vocabulary     {len(captioner.vocabulary)} words",
        f"runs on        {choose_device()}",
    ]
    count = sum(parameter.numel() for parameter in captioner.decoder.parameters())
    fields = {"  hidden_size: 12", "  name: vgg11_bn", "  size: 64", "  beam: 3"}
    assert {f"decoder        {count:,} parameters"} | fields <= set(lines)
    assert "license" not in described
    rest = f"(the whole card: {tiny_model / 'README.md'})"
    assert described.endswith(f"\n\n# A model\n\nIt sees.\n\n{rest}")
