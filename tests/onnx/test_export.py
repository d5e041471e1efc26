"""Exported captioners: the package's captions without torch, from folders of every precision."""

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from samples import (
    Refused,
    assert_same_captions,
    confidence_weights,
    make_captioner,
    photo,
    some_ngrams,
)

import captioner
import captioner.onnx
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, WordWeights
from captioner.caption.folder import save_model
from captioner.caption.lstm import DecoderConfig, ShowAttendTellDecoder
from captioner.caption.transformer import TransformerDecoder, TransformerDecoderConfig
from captioner.errors import UserError
from captioner.onnx.export import _plain_and_quiet, export_captioner
from captioner.vision.encoder_families import NetworkConfig, TorchvisionEncoder
from captioner.vision.preprocessing import Preprocessing

ROOT = Path(captioner.__file__).parents[1]
DEMO = ROOT / "captioner/demo.jpg"

pytestmark = pytest.mark.slow


def make_calibrated() -> Captioner:
    """The tiny captioner, with n-grams and a confidence."""
    model = make_captioner()
    model.ngrams = some_ngrams(len(model.vocabulary), 0.5)
    weights = confidence_weights(1.0, 0.5, 0.3, 0.1, -0.02)
    words = WordWeights(intercept=-1, probability=3, caption=0.5, both=0.1, offsets={"dog": 0.4})
    model.confidence = Confidence(weights=weights, unsure_below=0.45, words=words)
    return model


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    export_captioner(make_calibrated(), folder)
    return folder


def test_captions_maps_and_confidence_are_the_captioners(exported: Path, tmp_path: Path) -> None:
    model, graphs = make_calibrated().for_inference(), captioner.onnx.load(exported)
    photos = [photo(seed, (90 + 7 * seed, 80)) for seed in range(12)]
    for options in (
        {},
        {"n_best": 4, "beam": 6, "length_normalisation": 0.7},
        {"n_best": 5, "beam": 5, "maximum_length": 3},
        {"beam": 1},
        {"cautious": True, "n_best": 2},
        {"n_best": 3, "block_ngrams": 2, "repeat_distance": 3},
    ):
        found = graphs.caption(photos, batch_size=5, **options)
        assert_same_captions(found, model.caption(photos, **options))
    (caption,) = pickle.loads(pickle.dumps(graphs)).caption(photos[:1])
    assert_same_captions([caption], model.caption(photos[:1]))
    drawings = {"a.png": caption.overlay, "a.gif": caption.gif, "a.html": caption.html}
    for name, draw in drawings.items():
        draw(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert graphs.caption_annotations(np.zeros((0, 16, 25), np.float32)) == []


def test_the_packaged_captioner_says_the_same_in_files_of_every_precision(tmp_path: Path) -> None:
    model = captioner.load(precision="float32")
    photos = [photo(seed, (224, 224)) for seed in range(40)] + [DEMO]
    pixels = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    vectors, sizes = {}, {}
    for precision in ("float32", "float16", "int8"):
        folder = tmp_path / precision
        export_captioner(model, folder, precision)  # type: ignore[arg-type]
        files = json.loads((folder / "captioner.json").read_text())["files"]
        assert files == {name: (folder / name).stat().st_size for name in files}
        graphs = captioner.onnx.load(folder)
        vectors[precision], sizes[precision] = graphs.encode(pixels), files["encoder.onnx"]
        if precision == "float32":
            assert_same_captions(graphs.caption(photos), model.caption(photos))
        assert graphs.caption(DEMO).text == "a close up of a cat"
    assert 0.4 < sizes["float16"] / sizes["float32"] < 0.6
    assert 0.2 < sizes["int8"] / sizes["float32"] < 0.4
    whole = vectors["float32"]
    assert (vectors["float16"] == whole).all()  # The package's weights are in float16.
    assert 0 < np.linalg.norm(whole - vectors["int8"]) / np.linalg.norm(whole) < 0.015


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


def test_a_programs_logging_is_as_before_an_export() -> None:
    for level, within in ((logging.NOTSET, logging.WARNING), (logging.ERROR, logging.ERROR)):
        logging.disable(level)
        try:
            with _plain_and_quiet():
                assert logging.root.manager.disable == within
            assert logging.root.manager.disable == level
        finally:
            logging.disable(logging.NOTSET)


def test_ngrams_of_the_model_before_are_removed(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "onnx")
    export_captioner(make_captioner(), tmp_path / "onnx")
    assert not (tmp_path / "onnx/ngrams.bin").exists()
    found = captioner.onnx.load(tmp_path / "onnx").caption([DEMO])
    assert_same_captions(found, make_captioner().caption([DEMO]))


def test_what_does_not_work_is_refused(exported: Path, tmp_path: Path, refused: Refused) -> None:
    broken, other, short = (tmp_path / name for name in ("broken", "other", "short"))
    for folder in (broken, other, short):
        shutil.copytree(exported, folder)
    (broken / "step.onnx").write_bytes(b"no graph")
    (short / "ngrams.bin").write_bytes(b"123456")
    (other / "captioner.json").write_text('{"format": "other"}')
    many = make_captioner(words=[f"w{number}" for number in range(9_741)])
    many.ngrams = torch.tensor([5])
    config = TransformerDecoderConfig(embedding_size=8, heads=2, layers=1, inner_size=8)
    transformer = make_captioner()
    transformer.decoder = TransformerDecoder(config, len(transformer.vocabulary))
    load, folder = captioner.onnx.load, tmp_path / "model"
    for sentence, run in (
        ("an exported captioner .*captioner.json does not exist", lambda: load(tmp_path)),
        ("does not sample", lambda: load(exported).caption(photo(), sample=True)),
        ("step.onnx cannot be read", lambda: load(broken)),
        ("ngrams.bin is not there whole", lambda: load(short)),
        ("captioner.json: format 'other' is not one of", lambda: load(other)),
        ("more than 9,741 words has no export", lambda: export_captioner(many, folder)),
        ("'transformer' cannot be exported", lambda: export_captioner(transformer, folder)),
        (r"holds ONNX graphs, which captioner\.onnx\.load", lambda: captioner.load(exported)),
    ):
        with pytest.raises(UserError, match=sentence):
            run()
    save_model(make_captioner(), folder)
    assert "exists; --overwrite replaces it" in refused(["export", str(folder), str(exported)])


def test_it_runs_where_there_is_no_torch(exported: Path, tmp_path: Path) -> None:
    """As docs/onnx.md says, in an environment of its own."""
    page = (ROOT / "docs/onnx.md").read_text(encoding="utf-8")
    assert "\npip install --no-deps . " in page
    (install,) = (line for line in page.splitlines() if line.startswith("pip install onnxruntime"))
    without = ("PYTHONPATH", "PIP_FIND_LINKS")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    python = tmp_path / "environment/bin/python"
    code = f"""
import importlib.util, captioner.onnx
assert importlib.util.find_spec("torch") is None
caption = captioner.onnx.load({str(exported)!r}).caption({str(DEMO)!r})
caption.overlay("drawn.png")
print(caption.text)
"""
    for command in (
        [sys.executable, "-m", "venv", tmp_path / "environment"],
        [python, "-m", "pip", "install", "-q", *install.split()[2:]],
        [python, "-m", "pip", "install", "-q", "--no-deps", str(ROOT)],
        [python, "-c", code],
    ):
        shown = subprocess.run(
            command, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True
        )
    assert shown.stdout.strip() == captioner.onnx.load(exported).caption(DEMO).text
    assert (tmp_path / "drawn.png").is_file()
