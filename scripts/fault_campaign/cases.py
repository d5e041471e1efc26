"""The cases of each kind: good files, damaged at random."""

from __future__ import annotations

import io
import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
import yaml
from damage import damage_bytes, damage_values
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
WORDS = ["a", "dog", "man", "runs", "the", "two"]


@dataclass(frozen=True)
class Case:
    """What the worker does, see `worker.py`, and its arguments."""

    kind: str
    arguments: list[Any]


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
        vocabulary = Vocabulary(WORDS)
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
        self.data.mkdir()
        _write_data(self.data)


def photos(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Case]:
    """Photos of every format with changed bytes."""
    kinds = list(materials.photos.values())
    for bad in _files(folder):
        bad.write_bytes(damage_bytes(draw.choice(kinds), draw))
        yield Case("photo", [str(materials.captioner), str(materials.photo), str(bad)])


def configs(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Case]:
    """The configs of the repository with changed values or bytes."""
    texts = [path.read_text() for path in sorted(CONFIGS.glob("*.yaml"))]
    for bad in _files(folder):
        text = draw.choice(texts)
        if draw.random() < 0.7:
            text = yaml.safe_dump(damage_values(yaml.safe_load(text), draw))
            bad.write_text(text)
        else:
            bad.write_bytes(damage_bytes(text.encode(), draw))
        yield Case("config", [str(bad)])


def data_files(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Case]:
    """Captions in every format with changed values or bytes."""
    files = {path.name: path.read_bytes() for path in sorted(materials.data.glob("*.*"))}
    for bad in _files(folder):
        name = draw.choice(list(files))
        content = files[name]
        if name.endswith(".json") and draw.random() < 0.7:
            content = json.dumps(damage_values(json.loads(content), draw)).encode()
        else:
            content = damage_bytes(content, draw)
        bad = bad.with_suffix(Path(name).suffix)
        bad.write_bytes(content)
        yield Case("data", [name.partition(".")[0], str(bad), str(materials.data / "images")])


def model_folders(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Case]:
    """Folders of captioners and translators of which one file has changed values or bytes."""
    for bad in _files(folder):
        is_captioner = draw.random() < 0.5
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(materials.captioner if is_captioner else materials.translator, bad)
        file = draw.choice(sorted(bad.iterdir()))
        content = file.read_bytes()
        damaged = damage_bytes(content, draw)
        if file.suffix == ".json" and draw.random() < 0.7:
            damaged = json.dumps(damage_values(json.loads(content), draw)).encode()
        file.write_bytes(damaged)
        changes_weights = file.suffix == ".safetensors" and damaged != content
        if is_captioner:
            yield Case("captioner_folder", [str(bad), str(materials.photo), changes_weights])
        else:
            yield Case("translator_folder", [str(bad), changes_weights])


KINDS: dict[str, Callable[[Materials, Path, random.Random], Iterator[Case]]] = {
    "photos": photos,
    "configs": configs,
    "data files": data_files,
    "model folders": model_folders,
}


def _files(folder: Path) -> Iterator[Path]:
    """One path, for one case after the other."""
    return itertools.repeat(folder / "damaged")


def _encoded(photo: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    photo.save(file, kind, **options)
    return file.getvalue()


def _write_data(folder: Path) -> None:
    """A data set of two photos in every format; the file's stem is the format."""
    names = ("1.jpg", "2.jpg")
    (folder / "images").mkdir()
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
