"""The cases of each kind: good files, damaged at random."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
import worker
from damage import damage_bytes, damage_file
from PIL import Image

from captioner.caption import Captioner, DecoderConfig, ShowAttendTellDecoder, save_model
from captioner.decoding import SearchOptions
from captioner.text.vocabulary import Vocabulary
from captioner.text.word_vocabulary import WordVocabulary
from captioner.translate import LuongConfig, TranslationModelConfig, Translator, save_translator
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "JPEG2000")

Case = tuple[Any, ...]
"""A task of `worker.py`, and its arguments."""


class Materials:
    """Good files: photos of every format, models of random weights, data sets."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.photo = folder / "photo.png"
        photo = Image.fromarray(
            numpy.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=numpy.uint8)
        )
        self.photos = {kind: _encoded(photo, kind) for kind in FORMATS}
        self.photos["progressive JPEG"] = _encoded(photo, "JPEG", progressive=True)
        self.photo.write_bytes(self.photos["PNG"])
        self.captioner, self.translator = folder / "captioner", folder / "translator"
        torch.manual_seed(0)
        vocabulary = Vocabulary(["a", "dog", "man", "runs", "the", "two"])
        sizes = DecoderConfig(embedding_size=4, hidden_size=4, attention_size=4)
        captioner = Captioner(
            VGGEncoder(VGGConfig(name="vgg11_bn", width=0.02)),
            ShowAttendTellDecoder(sizes, len(vocabulary)),
            vocabulary,
            Preprocessing(size=32, resize="squash"),
            SearchOptions(beam=2, maximum_length=4),
        )
        save_model(captioner, self.captioner)
        words = WordVocabulary.learn(["a dog runs"], 1)
        luong = LuongConfig(embedding_size=4, hidden_size=4, attention_size=4)
        config = TranslationModelConfig(luong=luong)
        model = config.make(len(words), len(words))
        save_translator(Translator(config, model, words, words, 9), self.translator)
        self.data = folder / "data"
        _write_data(self.data)


def photos(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Case]:
    """Photos of every format with changed bytes."""
    kinds, bad = list(materials.photos.values()), folder / "damaged"
    while True:
        bad.write_bytes(damage_bytes(draw.choice(kinds), draw))
        yield worker.photo, materials.captioner, materials.photo, bad


def configs(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Case]:
    """The configs of the repository with changed values or bytes."""
    contents = [path.read_bytes() for path in sorted(CONFIGS.glob("*.yaml"))]
    bad = folder / "damaged.yaml"
    while True:
        bad.write_bytes(damage_file(draw.choice(contents), ".yaml", draw))
        yield worker.config, bad


def data_files(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Case]:
    """Captions in every format with changed values or bytes."""
    files = sorted(materials.data.glob("*.*"))
    while True:
        file = draw.choice(files)
        bad = folder / f"damaged{file.suffix}"
        bad.write_bytes(damage_file(file.read_bytes(), file.suffix, draw))
        yield worker.data, file.stem, bad, materials.data / "images"


def model_folders(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Case]:
    """Folders of captioners and translators of which one file has changed values or bytes."""
    bad = folder / "damaged"
    while True:
        is_captioner = draw.random() < 0.5
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(materials.captioner if is_captioner else materials.translator, bad)
        file = draw.choice(sorted(bad.iterdir()))
        content = file.read_bytes()
        damaged = damage_file(content, file.suffix, draw)
        file.write_bytes(damaged)
        changes_weights = file.suffix == ".safetensors" and damaged != content
        if is_captioner:
            yield worker.captioner_folder, bad, materials.photo, changes_weights
        else:
            yield worker.translator_folder, bad, changes_weights


KINDS: dict[str, Callable[[Materials, Path, random.Random], Iterator[Case]]] = {
    "photos": photos,
    "configs": configs,
    "data files": data_files,
    "model folders": model_folders,
}


def _encoded(photo: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    photo.save(file, kind, **options)
    return file.getvalue()


def _write_data(folder: Path) -> None:
    """A data set of two photos in every format; the file's stem is the format."""
    names = ("1.jpg", "2.jpg")
    (folder / "images").mkdir(parents=True)
    for name in names:
        (folder / "images" / name).touch()
    coco = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(names, 1)],
        "annotations": [
            {"id": n, "image_id": 1 + n % 2, "caption": "a dog runs"} for n in range(4)
        ],
    }
    (folder / "coco.json").write_text(json.dumps(coco))
    karpathy = {
        "images": [
            {
                **{"filename": name, "split": "train", "imgid": n, "sentids": [n]},
                "sentences": [{"raw": "A dog runs.", "tokens": ["a", "dog", "runs"], "sentid": n}],
            }
            for n, name in enumerate(names)
        ]
    }
    (folder / "karpathy.json").write_text(json.dumps(karpathy))
    tokens = "".join(f"{name}#{n}\tA dog runs .\n" for name in names for n in range(2))
    (folder / "flickr8k.txt").write_text(tokens)
    (folder / "table.csv").write_text("image,caption\n" + "".join(f"{n},a dog\n" for n in names))
