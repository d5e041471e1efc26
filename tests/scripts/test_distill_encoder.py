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
from captioner.runs.starting_weights import read_start
from captioner.vision.vgg import VGGConfig, VGGEncoder
from captioner.vision.weights import build_encoder


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
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
        str(ROOT / "scripts/default_model/distill_encoder.py"),
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


@pytest.mark.slow
def test_an_encoder_learns_from_two_teachers_and_on_mixed_photos(photos: Path) -> None:
    record = distil(photos, "--out", "run", "--classifier", "classifier.safetensors", "--mix")
    assert record["train_classes"] > 0
    learned = load_file(photos / "run/encoder.safetensors")
    fresh = VGGEncoder(VGGConfig(name="vgg11_bn", width=0.1)).state_dict()
    assert learned.keys() == fresh.keys()
    # A model folder's encoder, or such a file, is what the next one starts with; here wider.
    record = distil(
        *(photos, "--out", "wider", "--start-from", "run/encoder.safetensors"),
        *("--start-width", "0.1", "--width", "0.15"),
    )
    assert "train_classes" not in record
    wider = load_file(photos / "wider/encoder.safetensors")
    assert wider["features.0.weight"].shape == (10, 3, 3, 3)


@pytest.mark.slow
def test_an_encoder_learns_to_mean_the_same_to_a_decoder(photos: Path) -> None:
    lines = [f"{n}.jpg#{number}\ta dog runs\n" for n in range(6) for number in range(2)]
    (photos / "captions.txt").write_text("".join(lines))
    save_decoder(photos / "model")
    record = distil(photos, "--out", "run", "--decoder", "model", "--captions", "captions.txt")
    assert record["train_words"] > 0
    learned = load_file(photos / "run/encoder.safetensors")  # The decoder is no part of it.
    assert learned.keys() == VGGEncoder(VGGConfig(name="vgg11_bn", width=0.1)).state_dict().keys()
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
    eyes = build_encoder(VGGConfig(name="vgg11_bn", width=0.1), str(photos / "run/model"))
    read_start(photos / "run/model").put_into(model.decoder, eyes, trained=False)


def refused(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str
) -> str:
    """The sentence with which the script refuses to begin in a folder."""
    monkeypatch.chdir(folder)
    given = ["--photos", "photos", "--train", "train.txt", "--validation", "validation.txt"]
    given += ["--teacher", "teacher.safetensors", "--out", "run", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["distill_encoder.py", *given, *options])
    with pytest.raises(UserError) as error:
        script.main()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--decoder", "model"], "--decoder and --captions, which it reads, are given together"),
        (["--captions", "c.txt"], "--decoder and --captions, which it reads, are given together"),
        (["--decoder", "model", "--captions", "c.txt", "--mix"], "--mix overlays by others"),
        (["--batch-size", "0"], "--batch-size 0 is not at least 1"),
        (["--batch-size", "-3"], "--batch-size -3 is not at least 1"),
        (["--batch-size", "1", "--size", "63"], "--batch-size 1 needs --size 64 or more"),
        (["--size", "0"], "--size 0 is not at least 32"),
        (["--size", "8"], "--size 8 is not at least 32"),
        (["--epochs", "0"], "--epochs 0 is not at least 1"),
        (["--seed", "-1"], "--seed -1 is not at least 0"),
        (["--seed", str(2**32)], "--seed 4294967296 is above 4294967295"),
        (["--learning-rate", "0"], "--learning-rate 0.0 is not above 0 and finite"),
        (["--learning-rate", "nan"], "--learning-rate nan is not above 0 and finite"),
        (["--width", "2"], "width 2.0 is not at most 1"),
        (["--name", "vgg12"], "name 'vgg12' is not one of"),
        (["--start-width", "0.1"], "--start-width is of the weights that --start-from names"),
        (["--start-from", "x", "--start-width", "0"], "width 0.0 is not at least 0.01"),
        (["--start-from", "x", "--start-width", "0.6"], "--start-width 0.6 is above --width 0.5"),
        (["--out", "train.txt"], "--out needs"),
    ],
)
def test_options_are_checked_before_anything_is_read(
    tmp_path: Path,
    script: ModuleType,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "train.txt").write_text("never looked at")
    assert message in refused(script, monkeypatch, tmp_path, *options)


def test_too_few_photos_are_refused_before_any_is_read(
    photos: Path,
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    monkeypatch.setattr(script, "load_photos", lambda *_: pytest.fail("photos were read"))
    for name in ("train.txt", "validation.txt"):
        whole = (photos / name).read_text()
        (photos / name).write_text(" \n\n")
        sentence = refused(script, monkeypatch, photos, "--batch-size", "3")
        assert sentence == f"list of photos {name} names none"
        (photos / name).write_text(whole)
    sentence = refused(script, monkeypatch, photos, "--batch-size", "7")
    assert sentence == "--batch-size 7 is more than the 6 photos of train.txt"
    assert not recwarn.list


def test_names_of_photos_may_hold_blanks(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes(b"a dog.jpg\r\n\n b.jpg \nc.jpg")
    assert script.photo_names(tmp_path / "names.txt") == ["a dog.jpg", "b.jpg", "c.jpg"]


def test_a_crop_of_the_least_size_is_seen(script: ModuleType) -> None:
    student = script.Student(VGGConfig(name="vgg11_bn", width=0.05))
    shapes = [tuple(each.shape) for each in student(torch.rand(2, 3, 32, 32))]
    assert shapes == [(2, 512, 2, 2), (2, 1024, 1, 1), (2, 1000)]
    shapes = [tuple(each.shape) for each in student(torch.rand(1, 3, 64, 64))]
    assert shapes == [(1, 512, 4, 4), (1, 1024, 2, 2), (1, 1000)]


def test_a_widened_encoder_sees_what_the_narrow_one_sees(script: ModuleType) -> None:
    torch.manual_seed(0)
    narrow = VGGEncoder(VGGConfig(name="vgg11_bn", width=0.1))
    narrow(torch.randn(8, 3, 64, 64))  # For running means that are not those of the start.
    narrow.eval()
    pixels = torch.randn(2, 3, 64, 64)
    expected = narrow(pixels)
    wide = script.widened(narrow, VGGConfig(name="vgg11_bn", width=0.25), noise=0.0).eval()
    torch.testing.assert_close(wide(pixels), expected, rtol=1e-3, atol=1e-4)
    apart = script.widened(narrow, VGGConfig(name="vgg11_bn", width=0.25)).eval()(pixels) - expected
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
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
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
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
    from teacher import Classifier, Teacher

    save_file(mobile_net(0.75, last=13), tmp_path / "narrow.safetensors")
    with pytest.raises(UserError, match=r"no tensor 'pointwise11\.weight' of 512 channels"):
        Teacher(tmp_path / "narrow.safetensors")
    save_file(mobile_net(1.0, last=12), tmp_path / "cut.safetensors")
    with pytest.raises(UserError, match=r"no tensor 'logits\.weight' of 1000 channels"):
        Classifier(tmp_path / "cut.safetensors")
    block_11, block_12 = Teacher(tmp_path / "cut.safetensors")(torch.rand(2, 3, 64, 64))
    assert (block_11.shape, block_12.shape) == ((2, 512, 4, 4), (2, 1024, 2, 2))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("depthwise3.bias", None, r"has no tensor 'depthwise3\.bias'"),
        ("conv1.weight", None, r"has no tensor 'conv1\.weight'"),
        ("pointwise7.weight", None, r"has no tensor 'pointwise7\.weight'"),
        (
            "pointwise4.weight",
            torch.zeros(128, 100, 1, 1),
            r"'pointwise4\.weight' is \(128, 100, 1, 1\), not \(128, 128, 1, 1\)",
        ),
        (
            "depthwise5.weight",
            torch.zeros(64, 1, 3, 3),
            r"'depthwise5\.weight' is of 64 channels, and gets 256",
        ),
        ("depthwise9.bias", torch.zeros(7), r"'depthwise9\.bias' is \(7,\), not \(512,?\)"),
        ("conv1.weight", torch.tensor(1.0), r"'conv1\.weight' is \(\), not \(any, 3, 3, 3\)"),
        ("pointwise11.weight", torch.tensor(1.0), r"'pointwise11\.weight' of 512 channels"),
    ],
)
def test_every_layer_of_a_teacher_is_checked(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    tensor: torch.Tensor | None,
    message: str,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
    from teacher import Teacher

    tensors = mobile_net(1.0, last=12)
    if name == "depthwise5.weight":
        tensors["depthwise5.bias"] = torch.zeros(64)
    changed = {key: each for key, each in tensors.items() if key != name}
    save_file(changed if tensor is None else {**changed, name: tensor}, tmp_path / "t.safetensors")
    with pytest.raises(UserError, match=rf"t\.safetensors.*{message}"):
        Teacher(tmp_path / "t.safetensors")


@pytest.mark.parametrize("name", ["logits.bias", "depthwise13.weight", "pointwise13.bias"])
def test_every_layer_of_a_classifier_is_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
    from teacher import Classifier

    tensors = mobile_net(0.25, last=13)
    del tensors[name]
    save_file(tensors, tmp_path / "c.safetensors")
    with pytest.raises(UserError, match=rf"c\.safetensors has no tensor '{name}'"):
        Classifier(tmp_path / "c.safetensors")
