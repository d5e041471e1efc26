"""The switch, bfloat16, and few photos or rows at a time: the plain results."""

import copy
import pickle

import pytest
import torch
from samples import Patch, make_captioner
from torch.nn import functional

import captioner
from captioner import cpu
from captioner.caption.folder import load_model
from captioner.model_folders import DEMO_PHOTO, model_folder
from captioner.vision.images import load_image


def test_the_switch(monkeypatch: Patch) -> None:
    for value, runs in ((None, True), ("1", True), ("0", False)):
        monkeypatch.setenv(cpu.SWITCH, value or "")
        if value is None:
            monkeypatch.delenv(cpu.SWITCH)
        assert cpu.enabled(torch.device("cpu")) is runs
        assert not cpu.enabled(torch.device("cuda"))
        assert not cpu.enabled(torch.device("mps"))


@pytest.mark.parametrize(("kind", "size"), [(torch.float32, 2), (torch.bfloat16, 4)])
def test_a_cpu_encodes_photos_in_chunks(monkeypatch: Patch, kind: torch.dtype, size: int) -> None:
    model, pixels = make_captioner().backend.for_inference(), torch.randn(5, 3, 64, 64)
    found = model.encoder.encode(pixels)
    chunks = cpu.in_chunks(pixels.to(kind))
    assert [len(chunk) for chunk in chunks] == [size] * (5 // size) + [1]
    monkeypatch.setenv(cpu.SWITCH, "0")
    assert len(cpu.in_chunks(pixels)) == 1
    torch.testing.assert_close(found, model.encoder.encode(pixels), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "error"), [("vgg", 0.01), ("default", 0.07)])
def test_the_packaged_models_in_bfloat16_are_close_to_the_plain_ones(
    name: str, error: float
) -> None:
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
def test_products_by_packed_weights_are_torchs(
    shape: tuple[int, ...], bias: bool, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(cpu, "_LARGE_WEIGHT", 77)
    torch.manual_seed(0)
    layer = cpu.Linear(7, 11, bias=bias)
    # Like the state of a beam, not contiguous.
    inputs = torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]
    with torch.no_grad(), cpu.packed_weights():
        found = layer(inputs)
    torch.testing.assert_close(found, functional.linear(inputs, layer.weight, layer.bias))
    assert found.is_contiguous()


def test_packed_weights_follow_their_weights_and_nothing_else(monkeypatch: Patch) -> None:
    monkeypatch.setattr(cpu, "_LARGE_WEIGHT", 77)
    layer, inputs = cpu.Linear(7, 11), torch.randn(2, 7)
    kept = cpu.PackedWeights()

    def check() -> None:
        torch.testing.assert_close(layer(inputs), inputs @ layer.weight.T + layer.bias)

    with torch.no_grad():
        with cpu.packed_weights(kept):
            check()
            layer.weight.mul_(2.0)  # As an optimizer changes it.
            check()
            layer.weight.data = torch.randn(11, 7)  # As a move to another device does.
            with cpu.packed_weights():
                check()
            cpu.linear(inputs, layer.weight * 1.0)  # Nobody could ask for this one again.
        assert list(map(id, kept)) == [id(layer.weight)]
    with cpu.packed_weights(kept):
        assert layer(inputs).requires_grad


def test_models_that_have_searched_are_copied_and_pickled() -> None:
    model = captioner.load(engine="torch")
    expected = model.caption(DEMO_PHOTO).text
    assert model.backend.packed
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not copied.backend.packed
        assert copied.caption(DEMO_PHOTO).text == expected
    with torch.inference_mode():  # Its weights have no versions.
        assert captioner.load(engine="torch").caption(DEMO_PHOTO).text == expected


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
    plain = layer.train()(inputs)
    torch.manual_seed(0)
    assert torch.equal(plain, functional.dropout(inputs, 0.3))


def test_a_dropout_of_nearly_everything_is_finite() -> None:
    assert cpu.Dropout(0.999999)(torch.ones(1000)).isfinite().all()
