"""The fast encoder: who chooses it, and that it gives the plain one's vectors."""

import pytest
import torch
from samples import make_captioner
from torch import nn

import captioner
from captioner import cpu
from captioner.caption.folder import load_model
from captioner.demo import DEMO_PHOTO
from captioner.model_folders import model_folder
from captioner.vision.encoders import make_encoder
from captioner.vision.images import load_image
from captioner.vision.vgg import VGGConfig, VGGEncoder

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("has_instructions", [True, False])
def test_bfloat16_is_chosen_on_a_cpu_that_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, has_instructions: bool
) -> None:
    monkeypatch.delenv(cpu.SWITCH, raising=False)
    monkeypatch.setattr(cpu, "has_bfloat16", lambda device: has_instructions)
    expected = torch.bfloat16 if has_instructions else torch.float32
    assert cpu.choose_precision("auto", CPU) is expected
    assert cpu.choose_precision("auto", CUDA) is torch.float32
    for device in (CPU, CUDA):
        assert cpu.choose_precision("float32", device) is torch.float32
        assert cpu.choose_precision("bfloat16", device) is torch.bfloat16
    monkeypatch.setenv(cpu.SWITCH, "0")
    assert cpu.choose_precision("auto", CPU) is torch.float32


@pytest.mark.parametrize(("kind", "size"), [(torch.float32, 2), (torch.bfloat16, 4)])
def test_a_cpu_encodes_a_few_photos_at_a_time(
    monkeypatch: pytest.MonkeyPatch, kind: torch.dtype, size: int
) -> None:
    monkeypatch.delenv(cpu.SWITCH, raising=False)
    pixels = torch.randn(9, 3, 4, 4).to(kind)
    chunks = cpu.in_chunks(pixels)
    assert [len(chunk) for chunk in chunks] == [size] * (9 // size) + [1]
    torch.testing.assert_close(torch.cat(chunks), pixels)
    monkeypatch.setenv(cpu.SWITCH, "0")
    assert len(cpu.in_chunks(pixels)) == 1


@pytest.mark.parametrize("name", ["vgg11_bn", "vgg16_bn"])
def test_a_folded_encoder_gives_the_same_vectors(name: str) -> None:
    torch.manual_seed(0)
    encoder = VGGEncoder(VGGConfig.model_validate({"name": name, "width": 0.1}))
    images = torch.randn(4, 3, 64, 64)
    with torch.no_grad():
        encoder.train()(images)  # Moves the statistics away from 0 and 1.
        for layer in encoder.features:
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.weight, 0.5, 2)
                nn.init.normal_(layer.bias)
        expected = encoder.eval()(images)
        folded = encoder.fold_batch_norm()
        torch.testing.assert_close(folded(images), expected, rtol=1e-4, atol=1e-4)
    assert folded.config.name == name.removesuffix("_bn")
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in folded.modules())
    # The folded encoder is an ordinary one, so a model that holds it can still be saved.
    make_encoder(folded.config).load_state_dict(folded.state_dict())


def test_a_captioner_encodes_in_chunks_what_it_encodes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, pixels = make_captioner(), torch.randn(5, 3, 64, 64)
    monkeypatch.setenv(cpu.SWITCH, "0")
    expected = model.encode(pixels)
    monkeypatch.delenv(cpu.SWITCH)
    found = model.for_inference().encode(pixels)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_packaged_model_in_bfloat16_is_close_to_the_plain_one() -> None:
    plain, photo = load_model(model_folder()), load_image(DEMO_PHOTO)
    exact, fast = (captioner.load(precision=kind) for kind in ("float32", "bfloat16"))
    expected = plain.annotations([photo])  # (1, L, D)
    torch.testing.assert_close(exact.annotations([photo]), expected, rtol=1e-3, atol=1e-3)
    found = fast.annotations([photo])
    assert found.dtype is torch.float32
    assert (found - expected).norm() < 0.01 * expected.norm()
    (one,), (other,) = exact.caption_annotations(expected), fast.caption_annotations(found)
    # The demo photo's caption, which the README shows, is the same on every machine.
    assert one.words == other.words == plain.caption(photo).words == fast.caption(photo).words
    assert one.word_log_probabilities != other.word_log_probabilities
    assert one.word_log_probabilities == pytest.approx(other.word_log_probabilities, abs=0.1)
    assert other.attention.dtype is torch.float32
    torch.testing.assert_close(other.attention, one.attention, rtol=0.2, atol=1e-3)


def test_the_packaged_translator_in_bfloat16_is_close_to_the_plain_one() -> None:
    sentence = "Two men are playing football in the snow."
    one, other = (
        captioner.load_translator(precision=precision).translate(sentence)
        for precision in ("float32", "bfloat16")
    )
    assert one.tokens == other.tokens
    assert one.token_log_probabilities != other.token_log_probabilities
    assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=0.1)
    assert other.alignment.dtype is torch.float32
    torch.testing.assert_close(other.alignment, one.alignment, rtol=0.2, atol=0.02)


@pytest.mark.parametrize(
    ("device", "value", "expected"),
    [
        ("cpu", None, True),
        ("cpu", "1", True),
        ("cpu", "0", False),
        ("cuda", None, False),
        ("mps", "1", False),
    ],
)
def test_runs_on_a_cpu_unless_switched_off(
    monkeypatch: pytest.MonkeyPatch, device: str, value: str | None, expected: bool
) -> None:
    if value is None:
        monkeypatch.delenv(cpu.SWITCH, raising=False)
    else:
        monkeypatch.setenv(cpu.SWITCH, value)
    assert cpu.enabled(torch.device(device)) is expected
