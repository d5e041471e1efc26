from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file, save_file
from samples import save_photo
from scripts_samples import ROOT, mobile_net, run, save_decoder

from captioner.caption import load_model
from captioner.errors import UserError
from captioner.recipes.start import read_start
from captioner.vision.vgg import VGGConfig, VGGEncoder
from captioner.vision.weights import build_encoder


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import distill_encoder

    return distill_encoder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six photos to learn from, two to judge by, and two teachers with random weights."""
    for number in range(8):
        save_photo(tmp_path / f"photos/{number}.jpg", seed=number)
    (tmp_path / "train.txt").write_text("\n".join(f"{n}.jpg" for n in range(6)))
    (tmp_path / "validation.txt").write_text("6.jpg\n7.jpg\n")
    save_file(mobile_net(1.0, last=12), tmp_path / "teacher.safetensors")
    save_file(mobile_net(0.75, last=13), tmp_path / "classifier.safetensors")
    return tmp_path


def distil(folder: Path, *arguments: str) -> dict[str, float]:
    said = run(
        folder,
        str(ROOT / "scripts/distill_encoder.py"),
        *("--photos", "photos", "--train", "train.txt", "--validation", "validation.txt"),
        *("--teacher", "teacher.safetensors", "--width", "0.1", "--batch-size", "3"),
        *("--size", "64", "--epochs", "2", "--device", "cpu", *arguments),
    )
    assert "block 12" in said
    *_, last = (
        (folder / arguments[arguments.index("--out") + 1] / "log.jsonl")
        .read_text()
        .split("\n")[:-1]
    )
    record: dict[str, float] = json.loads(last)
    return record


def test_an_encoder_learns_from_two_teachers_and_on_mixed_photos(photos: Path) -> None:
    record = distil(photos, "--out", "run", "--classifier", "classifier.safetensors", "--mix")
    assert record["train_classes"] > 0
    learned = load_file(photos / "run/encoder.safetensors")
    fresh = VGGEncoder(VGGConfig("vgg11_bn", 0.1)).state_dict()
    assert learned.keys() == fresh.keys()
    # A model folder's encoder, or such a file, is what the next one starts with; here wider.
    record = distil(
        *(photos, "--out", "wider", "--start-from", "run/encoder.safetensors"),
        *("--start-width", "0.1", "--width", "0.15"),
    )
    assert "train_classes" not in record
    wider = load_file(photos / "wider/encoder.safetensors")
    assert wider["features.0.weight"].shape == (10, 3, 3, 3)


def test_an_encoder_learns_to_mean_the_same_to_a_decoder(photos: Path) -> None:
    lines = [f"{n}.jpg#{number}\ta dog runs\n" for n in range(6) for number in range(2)]
    (photos / "captions.txt").write_text("".join(lines))
    save_decoder(photos / "model")
    record = distil(photos, "--out", "run", "--decoder", "model", "--captions", "captions.txt")
    assert record["train_words"] > 0
    learned = load_file(photos / "run/encoder.safetensors")  # The decoder is no part of it.
    assert learned.keys() == VGGEncoder(VGGConfig("vgg11_bn", 0.1)).state_dict().keys()
    # That decoder, unchanged, with these eyes is a model.
    given, model = load_model(photos / "model"), load_model(photos / "run/model")
    torch.testing.assert_close(model.encoder.state_dict(), learned)
    assert not torch.equal(
        given.encoder.state_dict()["features.0.weight"], learned["features.0.weight"]
    )
    torch.testing.assert_close(model.decoder.state_dict(), given.decoder.state_dict())
    assert model.vocabulary.words == given.vocabulary.words
    assert model.preprocessing == given.preprocessing
    # A run that names the model twice, as where it starts and as its eyes, takes both.
    eyes = build_encoder(VGGConfig("vgg11_bn", 0.1), str(photos / "run/model"))
    read_start(photos / "run/model").put_into(model.decoder, eyes, trained=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--decoder", "model"], "--decoder and --captions, which it reads, are given together"),
        (["--captions", "c.txt"], "--decoder and --captions, which it reads, are given together"),
        (["--decoder", "model", "--captions", "c.txt", "--mix"], "--mix overlays by others"),
    ],
)
def test_a_decoder_needs_captions_of_the_photos(
    photos: Path,
    script: ModuleType,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(photos)
    given = ["--photos", "photos", "--train", "train.txt", "--validation", "validation.txt"]
    given += ["--teacher", "teacher.safetensors", "--out", "run", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["distill_encoder.py", *given, *options])
    with pytest.raises(UserError, match=message):
        script.main()


def test_a_widened_encoder_sees_what_the_narrow_one_sees(script: ModuleType) -> None:
    torch.manual_seed(0)
    narrow = VGGEncoder(VGGConfig("vgg11_bn", 0.1))
    narrow(torch.randn(8, 3, 64, 64))  # For running means that are not those of the start.
    narrow.eval()
    pixels = torch.randn(2, 3, 64, 64)
    expected = narrow(pixels)
    wide = script.widened(narrow, VGGConfig("vgg11_bn", 0.25), noise=0.0).eval()
    torch.testing.assert_close(wide(pixels), expected, rtol=1e-3, atol=1e-4)
    apart = script.widened(narrow, VGGConfig("vgg11_bn", 0.25)).eval()(pixels) - expected
    assert 0 < float(apart.detach().square().mean()) < 0.2 * float(expected.detach().var())


def test_photos_are_cut_mirrored_and_coloured_anew_each_time(script: ModuleType) -> None:
    ramp = torch.arange(224, dtype=torch.uint8).expand(8, 3, 224, 224)  # Brighter to the right.
    generator = torch.Generator().manual_seed(0)
    pixels = script.augment(ramp, 64, generator)
    assert pixels.shape == (8, 3, 64, 64)
    assert 0 <= float(pixels.min()) < float(pixels.max()) <= 1
    rising = pixels[:, 0, 32, -1] > pixels[:, 0, 32, 0]
    assert 0 < int(rising.sum()) < 8
    assert not torch.equal(script.augment(ramp, 64, generator), pixels)


def test_half_of_the_photos_are_mixed_with_their_neighbour(script: ModuleType) -> None:
    pixels = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 3, 20, 20) / 8
    seen = set()
    for seed in range(20):
        mixed = script.mixed(pixels, torch.Generator().manual_seed(seed))
        assert torch.equal(mixed[1::2], pixels[1::2])
        for index in range(0, 8, 2):
            own, other = pixels[index, 0, 0, 0], pixels[index - 1, 0, 0, 0]
            values = mixed[index].unique()
            if len(values) == 1:  # Blended: never more of the other one.
                assert abs(values - own) <= abs(values - other)
                seen.add("blended")
            else:
                assert set(values.tolist()) == {float(own), float(other)}
                seen.add("pasted")
    assert seen == {"blended", "pasted"}


def test_a_classifier_is_what_its_blocks_make_of_a_photo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from teacher import Classifier

    tensors = mobile_net(0.75, last=13)
    save_file(tensors, tmp_path / "classifier.safetensors")
    pixels = torch.rand(2, 3, 64, 64)
    classifier = Classifier(tmp_path / "classifier.safetensors")
    *_, block_11, block_12, block_13 = classifier.blocks(pixels, 13)
    assert (block_11.shape, block_12.shape) == ((2, 384, 4, 4), (2, 768, 2, 2))
    weight, bias = tensors["logits.weight"], tensors["logits.bias"]
    torch.testing.assert_close(classifier(pixels), block_13.mean((2, 3)) @ weight.t() + bias)


def test_a_teacher_of_other_sizes_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from teacher import Classifier, Teacher

    save_file(mobile_net(0.75, last=13), tmp_path / "narrow.safetensors")
    with pytest.raises(UserError, match=r"no tensor 'pointwise11\.weight' of 512 channels"):
        Teacher(tmp_path / "narrow.safetensors")
    save_file(mobile_net(1.0, last=12), tmp_path / "cut.safetensors")
    with pytest.raises(UserError, match=r"no tensor 'logits\.weight' of 1000 channels"):
        Classifier(tmp_path / "cut.safetensors")
    block_11, block_12 = Teacher(tmp_path / "cut.safetensors")(torch.rand(2, 3, 64, 64))
    assert (block_11.shape, block_12.shape) == ((2, 512, 4, 4), (2, 1024, 2, 2))
