"""The switch, bfloat16, and few photos or rows at a time: the plain results."""

import copy
import pickle
from pathlib import Path

import pytest
import torch
from samples import Patch, assert_same_captions, make_captioner, make_translator
from torch import nn
from torch.nn import functional

import captioner
from captioner import cpu
from captioner.caption.folder import load_model, save_model
from captioner.errors import UserError
from captioner.model_folders import DEMO_PHOTO, model_folder
from captioner.translate.folder import save_translator
from captioner.vision.images import load_image


def test_the_switch(monkeypatch: Patch) -> None:
    for value, runs in ((None, True), ("1", True), ("0", False)):
        monkeypatch.setenv(cpu.SWITCH, value or "")
        if value is None:
            monkeypatch.delenv(cpu.SWITCH)
        assert cpu.is_switched_on() is runs
    assert [cpu.runs_on(torch.device(name)) for name in ("cpu", "cuda", "mps")] == [1, 0, 0]


@pytest.mark.parametrize(("kind", "size"), [(torch.float32, 2), (torch.bfloat16, 4)])
def test_a_cpu_encodes_photos_in_chunks(kind: torch.dtype, size: int) -> None:
    model, pixels = make_captioner().backend.for_inference(), torch.randn(5, 3, 64, 64)
    found = model.encoder.encode(pixels)
    chunks = cpu.in_chunks(pixels.to(kind))
    assert [len(chunk) for chunk in chunks] == [size] * (5 // size) + [1]
    with torch.no_grad():
        torch.testing.assert_close(found, model.encoder(pixels), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "error"), [("vgg", 0.01), ("default", 0.07)])
def test_packaged_models_in_bfloat16_are_close_to_the_plain_ones(name: str, error: float) -> None:
    plain, photo = load_model(model_folder(name)), load_image(DEMO_PHOTO)
    exact, fast = (
        captioner.load(name, precision=kind, engine="torch") for kind in ("float32", "bfloat16")
    )
    expected = plain.annotations([photo])  # (1, L, D)
    torch.testing.assert_close(exact.annotations([photo]), expected, rtol=1e-3, atol=1e-3)
    found = fast.annotations([photo])
    assert found.dtype is torch.float32
    assert (found - expected).norm() < error * expected.norm()
    (one,), (other,) = exact.caption_annotations(expected), fast.caption_annotations(found)
    # The demo photo's caption, which the README shows, is the same on every machine.
    assert one.words == other.words == plain.caption(photo).words == fast.caption(photo).words
    assert one.word_log_probabilities != other.word_log_probabilities
    assert one.word_log_probabilities == pytest.approx(other.word_log_probabilities, abs=0.1)
    torch.testing.assert_close(other.attention, one.attention, rtol=0.2, atol=1e-3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 7), (1, 5, 7), (3, 4, 1, 7), (1, 7), (33, 7), (0, 7)])
def test_packed_layers_give_torchs_products(
    shape: tuple[int, ...], bias: bool, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(cpu, "_LARGE_WEIGHT", 77)
    torch.manual_seed(0)
    layer = nn.Linear(7, 11, bias=bias)
    packed = packed_from(layer)
    # Like the state of a beam, not contiguous.
    inputs = torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2].requires_grad_()
    expected = layer(inputs)
    torch.testing.assert_close(packed(inputs), expected)  # With a gradient.
    (gradient,) = torch.autograd.grad(packed(inputs).sum(), inputs)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), inputs)[0])
    with torch.no_grad():
        found = packed(inputs)
        torch.testing.assert_close(found, expected)
        assert found.is_contiguous()
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(packed(inputs.bfloat16()), expected, rtol=0.1, atol=0.1)
    assert torch.equal(packed.weight, layer.weight)
    # A finished layer has nothing that can be trained, or changed behind its back.
    assert not list(packed.parameters())
    packed.weight.zero_()
    torch.testing.assert_close(packed(inputs), expected)


def packed_from(layer: nn.Linear | cpu.LSTMCell) -> nn.Module:
    """What `pack` makes of a layer."""
    model = nn.Sequential(nn.Sequential(layer))
    cpu.pack(model)
    packed: nn.Module = model[0][0]
    assert packed is not layer
    return packed


def test_a_packed_cell_gives_the_gates(monkeypatch: Patch) -> None:
    monkeypatch.setattr(cpu, "_LARGE_WEIGHT", 36)
    cell = cpu.LSTMCell(5, 3)
    packed = packed_from(cell)
    inputs, hidden = torch.randn(2, 4, 5), torch.randn(2, 4, 3)
    torch.testing.assert_close(packed.gates(inputs, hidden), cell.gates(inputs, hidden))
    for found, expected in zip(packed.weights, cell.weights, strict=True):
        assert torch.equal(found, expected)


def test_what_is_not_packed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(cpu, "_LARGE_WEIGHT", 77)
    weight = torch.empty(11, 7)
    assert cpu.is_packable(weight)
    assert not cpu.is_packable(weight[:10])
    assert not cpu.is_packable(weight.bfloat16())
    assert not cpu.is_packable(weight.to("meta"))
    monkeypatch.setenv(cpu.SWITCH, "0")
    assert not cpu.is_packable(weight)


def test_a_model_open_for_captioning_is_packed_and_one_to_train_never() -> None:
    model, saved = captioner.load(engine="torch"), load_model(model_folder())
    kinds = [{type(layer) for layer in each.backend.decoder.modules()} for each in (model, saved)]
    packed = {cpu.PackedLinear, cpu.PackedLSTMCell}
    assert packed <= kinds[0]
    saved.caption(DEMO_PHOTO)
    assert not packed & (kinds[1] | {type(layer) for layer in saved.backend.decoder.modules()})
    with pytest.raises(UserError, match="open for captioning; `load_model` opens it for training"):
        save_model(model, "never")
    assert not Path("never").exists()
    photo = [load_image(DEMO_PHOTO)]
    (found,), (expected,) = (each.explain(photo, ["a cat on a sofa"]) for each in (model, saved))
    assert_same_captions([found], [expected])
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.caption(DEMO_PHOTO).text == model.caption(DEMO_PHOTO).text
    with torch.inference_mode():
        inference = captioner.load(engine="torch")
        assert inference.caption(DEMO_PHOTO).text == model.caption(DEMO_PHOTO).text


def test_dropout_keeps_the_share_and_the_mean(monkeypatch: Patch) -> None:
    torch.manual_seed(0)
    inputs = torch.ones(1000, 1003, requires_grad=True)
    layer = cpu.Dropout(0.3)
    found = layer(inputs)
    assert found.unique().tolist() == pytest.approx([0, 1 / 0.7], rel=1e-4)
    assert (found == 0).float().mean() == pytest.approx(0.3, abs=2e-3)
    # Four values are drawn at once: each fourth of them has its own share, and none is a copy.
    fourths = (found.flatten()[: 4 * 250_000] == 0).float().view(-1, 4)
    assert fourths.mean(dim=0).tolist() == pytest.approx([0.3] * 4, abs=4e-3)
    assert torch.corrcoef(fourths.T).fill_diagonal_(0).abs().max() < 0.01
    found.sum().backward()
    assert torch.equal(inputs.grad, found.detach())
    torch.manual_seed(0)
    assert torch.equal(layer(inputs), found)
    assert layer(inputs.half()).dtype is torch.half
    assert torch.equal(layer.eval()(inputs), inputs)
    monkeypatch.setenv(cpu.SWITCH, "0")
    torch.manual_seed(0)
    plain = cpu.Dropout(0.3)(inputs)
    torch.manual_seed(0)
    assert torch.equal(plain, functional.dropout(inputs, 0.3))


def test_a_dropout_of_nearly_everything_is_finite() -> None:
    assert cpu.Dropout(0.999999)(torch.ones(1000)).isfinite().all()


def test_a_translator_that_is_open_is_not_saved_without_its_weights(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(cpu, "_LARGE_WEIGHT", 16)
    save_translator(make_translator(["a dog runs"]), tmp_path / "model")
    content = (tmp_path / "model" / "model.safetensors").read_bytes()
    opened = captioner.load_translator(tmp_path / "model", engine="torch")
    with pytest.raises(UserError, match="load it for training"):
        save_translator(opened, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == content
