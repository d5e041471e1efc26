"""Exported captioners: the package's captions without torch, from folders of every precision."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from samples import Refused, assert_same_captions, make_captioner, photo, some_ngrams

import captioner
import captioner.onnx
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, ConfidenceWeights
from captioner.caption.folder import save_model
from captioner.caption.lstm import DecoderConfig, ShowAttendTellDecoder
from captioner.caption.transformer import TransformerDecoder, TransformerDecoderConfig
from captioner.errors import UserError
from captioner.onnx.export import export_captioner, quantised
from captioner.vision.network_encoder import NetworkConfig, TorchvisionEncoder
from captioner.vision.preprocessing import Preprocessing

ROOT = Path(captioner.__file__).parents[1]

pytestmark = pytest.mark.slow


def make_calibrated() -> Captioner:
    """The tiny captioner, with n-grams and a confidence."""
    model = make_captioner()
    model.ngrams = some_ngrams(len(model.vocabulary), 0.5)
    weights = ConfidenceWeights(
        intercept=1.0,
        mean_log_probability=0.5,
        content_log_probability=0.3,
        lowest_log_probability=0.1,
        words=-0.02,
    )
    model.confidence = Confidence(weights=weights, unsure_below=0.45)
    return model


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    export_captioner(make_calibrated(), folder)
    return folder


def test_captions_maps_and_confidence_are_the_captioners(exported: Path, tmp_path: Path) -> None:
    model, graphs = make_calibrated().for_inference(), captioner.onnx.load(exported)
    photos = [photo(seed, (90 + 7 * seed, 80)) for seed in range(12)]
    for options in ({}, {"n_best": 4, "beam": 6}, {"beam": 1}, {"block_ngrams": 2}):
        assert_same_captions(
            graphs.caption(photos, batch_size=5, **options), model.caption(photos, **options)
        )
    (caption,) = pickle.loads(pickle.dumps(graphs)).caption(photos[:1])
    assert_same_captions([caption], model.caption(photos[:1]))
    for name, draw in (
        ("a.png", caption.overlay),
        ("a.gif", caption.gif),
        ("a.html", caption.html),
    ):
        draw(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_the_packaged_captioner_says_the_same_of_a_hundred_photos(tmp_path: Path) -> None:
    model = captioner.load(precision="float32")
    photos = [photo(seed, (224, 224)) for seed in range(99)] + [ROOT / "captioner/demo.jpg"]
    export_captioner(model, tmp_path)
    assert_same_captions(captioner.onnx.load(tmp_path).caption(photos), model.caption(photos))
    size = {name: path.stat().st_size for path in tmp_path.iterdir() if (name := path.name)}
    description = json.loads((tmp_path / "captioner.json").read_text())
    assert description["files"] == {name: size[name] for name in description["files"]}


@pytest.mark.parametrize(
    ("precision", "least", "most"), [("float16", 0.4, 0.6), ("int8", 0.2, 0.4)]
)
def test_fewer_bits_make_smaller_files_and_nearly_the_same_annotation_vectors(
    exported: Path, tmp_path: Path, precision: str, least: float, most: float
) -> None:
    folders = {}
    for name in ("float32", precision):
        folders[name] = tmp_path / name
        export_captioner(captioner.load(precision="float32"), folders[name], name)  # type: ignore[arg-type]
    sizes = [(folder / "encoder.onnx").stat().st_size for folder in folders.values()]
    assert least < sizes[1] / sizes[0] < most
    pixels = numpy.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(numpy.float32)
    whole, fewer = (captioner.onnx.load(each).encode(pixels) for each in folders.values())
    error = numpy.linalg.norm(whole - fewer) / numpy.linalg.norm(whole)
    assert error < 0.015
    assert (error > 0) == (precision == "int8")  # The package's weights are in float16.
    demo = ROOT / "captioner/demo.jpg"
    assert captioner.onnx.load(folders[precision]).caption(demo).text == "a close up of a cat"


def test_quantised_weights_are_within_half_a_step_of_a_row_or_a_kernel() -> None:
    for shape, axes in (((5, 7), (1,)), ((5, 7, 3, 3), (2, 3)), ((5, 7, 1, 1), (1, 2, 3))):
        weight = numpy.random.default_rng(1).normal(size=shape).astype(numpy.float32)
        weight[0] = 0
        numbers, scale = quantised(weight)
        assert (numbers.dtype, scale.dtype) == (numpy.int8, numpy.float16)
        assert scale.size == numpy.abs(weight).max(axis=axes).size
        step = numpy.abs(weight).max(axis=axes, keepdims=True) / 127
        assert (numpy.abs(numbers * scale.astype(numpy.float32) - weight) <= 0.6 * step).all()
        assert not numbers[0].any()


@pytest.mark.parametrize(("name", "size"), [("resnet18", 64), ("vit_b_32", 224)])
def test_torchvisions_encoders_are_exported_as_they_compute(
    tmp_path: Path, name: str, size: int
) -> None:
    tiny = make_captioner()
    encoder = TorchvisionEncoder(NetworkConfig(name=f"torchvision/{name}"))
    config = DecoderConfig(memory_size=encoder.annotation_size, hidden_size=8, attention_size=8)
    decoder = ShowAttendTellDecoder(config, len(tiny.vocabulary))
    model = Captioner(encoder, decoder, tiny.vocabulary, Preprocessing(size=size))
    export_captioner(model, tmp_path)
    pixels = torch.rand(3, 3, size, size)  # Batches of 2 and 1.
    found = torch.from_numpy(captioner.onnx.load(tmp_path).encode(pixels.numpy()))
    torch.testing.assert_close(found, model.encode(pixels), rtol=1e-3, atol=1e-3)


def test_ngrams_of_the_model_before_are_removed(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "onnx")
    export_captioner(make_captioner(), tmp_path / "onnx")
    assert not (tmp_path / "onnx/ngrams.bin").exists()
    graphs = captioner.onnx.load(tmp_path / "onnx")
    assert graphs.caption(photo()).confidence is None
    assert graphs.caption_annotations(numpy.zeros((0, 16, 25), numpy.float32)) == []


def test_folders_and_decoders_that_do_not_work_are_refused(
    exported: Path, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="is not a folder that captioner export wrote"):
        captioner.onnx.load(tmp_path)
    with pytest.raises(UserError, match="does not sample"):
        captioner.onnx.load(exported).caption(photo(), sample=True)
    broken = tmp_path / "broken"
    shutil.copytree(exported, broken)
    (broken / "step.onnx").write_bytes(b"no graph")
    with pytest.raises(UserError, match=r"step.onnx cannot be read"):
        captioner.onnx.load(broken)
    (broken / "captioner.json").write_text('{"format": "other"}')
    with pytest.raises(UserError, match=r"captioner.json is not of the format"):
        captioner.onnx.load(broken)
    model = make_captioner(words=[f"w{number}" for number in range(9_741)])
    model.ngrams = torch.tensor([5])
    with pytest.raises(UserError, match="more than 9,741 words has no export"):
        export_captioner(model, tmp_path / "many")
    model = make_captioner()
    config = TransformerDecoderConfig(embedding_size=8, heads=2, layers=1, inner_size=8)
    model.decoder = TransformerDecoder(config, len(model.vocabulary))
    with pytest.raises(UserError, match="'transformer' cannot be exported, only 'lstm'"):
        export_captioner(model, tmp_path / "transformer")
    folder = tmp_path / "model"
    save_model(make_captioner(), folder)
    assert "exists; --overwrite replaces it" in refused(["export", str(folder), str(exported)])


def test_it_runs_where_there_is_no_torch(exported: Path, tmp_path: Path) -> None:
    """As docs/onnx.md says, in an environment of its own."""
    page = (ROOT / "docs/onnx.md").read_text(encoding="utf-8")
    commands = [line for line in page.splitlines() if line.startswith("pip install --no-deps")]
    (install,) = (line for line in page.splitlines() if line.startswith("pip install onnxruntime"))
    assert commands
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.pop("PIP_FIND_LINKS", None)
    python = tmp_path / "environment/bin/python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    for words in (install.split()[2:], ["--no-deps", str(ROOT)]):
        subprocess.run([python, "-m", "pip", "install", "-q", *words], check=True, env=environment)
    code = f"""
import importlib.util, captioner.onnx
assert importlib.util.find_spec("torch") is None
caption = captioner.onnx.load({str(exported)!r}).caption({str(ROOT / "captioner/demo.jpg")!r})
caption.overlay("drawn.png")
print(caption.text)
"""
    command = [python, "-c", code]
    shown = subprocess.run(
        command, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    wanted = captioner.onnx.load(exported).caption(ROOT / "captioner/demo.jpg").text
    assert shown.stdout.strip() == wanted
    assert (tmp_path / "drawn.png").is_file()


def test_a_folder_of_graphs_is_no_model_folder(exported: Path) -> None:
    with pytest.raises(UserError, match=r"holds ONNX graphs, which captioner\.onnx\.load reads"):
        captioner.load(exported)
