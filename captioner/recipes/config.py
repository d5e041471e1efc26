"""Every field of a training config, in one place; `configs/*.yaml` are made of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from captioner.caption import DecoderConfig, ObjectiveConfig, SearchOptions
from captioner.data.shapes import ShapesConfig
from captioner.errors import UserError
from captioner.fields import from_mapping
from captioner.files import read_text
from captioner.training import TrainingConfig
from captioner.vision.preprocessing import Preprocessing

DATA_FORMATS = ("coco", "karpathy", "flickr8k", "table", "shapes")
SCORES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D", "exact match")


@dataclass(frozen=True)
class ShapesData:
    """The generated set: so many pictures for each split, from `seed`, as `pictures` says."""

    train: int = 8000
    validation: int = 500
    seed: int = 0
    pictures: ShapesConfig = field(default_factory=ShapesConfig)


@dataclass(frozen=True)
class DataConfig:
    """What is learned from, and what is validated on. Paths start from the working folder.

    format: `coco` (captions_*.json), `karpathy` (dataset_*.json), `flickr8k` (a token file, of
        Flickr8k or Flickr30k), `table` (.csv or .jsonl), or `shapes` (generated, no files).
    annotations, images: the captions and the folder of the photos.
    train, validation: which split is which, as the format names them; see the format's reader.
    validation_annotations: where the validation captions are in a file of their own.
    on_problem: `refuse` to start when a record is bad, or `skip` such records and say so.
    maximum_length: words; longer training captions are cut, and counted.
    shapes: the generated set, for the format `shapes`.

    Raises `UserError` for an unknown format and for files that are not named.
    """

    format: str
    annotations: Path | None = None
    images: Path | None = None
    train: str | None = "train"
    validation: str | None = "val"
    validation_annotations: Path | None = None
    on_problem: str = "refuse"
    maximum_length: int = 50
    shapes: ShapesData = field(default_factory=ShapesData)

    def __post_init__(self) -> None:
        if self.format not in DATA_FORMATS:
            raise UserError(f"format {self.format!r} is not one of {', '.join(DATA_FORMATS)}")
        if self.on_problem not in ("refuse", "skip"):
            raise UserError(f"on_problem {self.on_problem!r} is not one of refuse, skip")
        if self.maximum_length < 1:
            raise UserError(f"maximum_length {self.maximum_length} is not at least 1")
        if self.format != "shapes" and self.annotations is None:
            raise UserError(f"field 'annotations' is missing; format {self.format!r} needs it")
        if self.format in ("coco", "karpathy", "flickr8k") and self.images is None:
            raise UserError(f"field 'images' is missing; format {self.format!r} needs it")


@dataclass(frozen=True)
class EncoderRecipe:
    """Which VGG reads the photos.

    name, width: as in `captioner.vision.vgg.VGGConfig`.
    weights: `imagenet` (torchvision's, downloaded on first use), `random`, or a path.
    train: whether it is trained along; otherwise annotation vectors are computed once and stored.
    """

    name: str = "vgg19"
    width: float = 1.0
    weights: str = "imagenet"
    train: bool = False


@dataclass(frozen=True)
class FeaturesConfig:
    """The feature store.

    folder: where it lies; by default `features` in the run's folder. Runs may share one.
    mirror: also store every training photo mirrored, and train on either, at random.
    batch_size: photos encoded at a time.
    """

    folder: Path | None = None
    mirror: bool = False
    batch_size: int = 32


@dataclass(frozen=True)
class ValidationConfig:
    """Free-running validation: captions are searched for as a user would get them.

    score: what decides which epoch is kept; one of `SCORES`.
    images: validate on the first so many only; 0 for all. batch_size: photos at a time.
    """

    score: str = "CIDEr-D"
    images: int = 0
    batch_size: int = 50

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise UserError(f"score {self.score!r} is not one of {', '.join(SCORES)}")
        if self.images < 0 or self.batch_size < 1:
            raise UserError("images must be at least 0 and batch_size at least 1")


@dataclass(frozen=True)
class CaptioningRecipe:
    """A whole captioning run. The sections are documented at their classes.

    minimum_count: how often a word occurs in the training captions to be in the vocabulary.
    """

    data: DataConfig
    minimum_count: int = 5
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    encoder: EncoderRecipe = field(default_factory=EncoderRecipe)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchOptions = field(default_factory=SearchOptions)
    validation: ValidationConfig = field(default_factory=ValidationConfig)


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> CaptioningRecipe:
    """Read and validate a YAML config.

    changes: `section.field=value`, each put over what the file says, the value read as YAML.
    Raises `UserError` naming the file and the field that is unknown, ill-typed or out of range.
    """
    try:
        mapping = yaml.safe_load(read_text(path, "config"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise UserError(f"config {path} is not valid YAML{line}") from None
    for change in changes:
        mapping = _changed({} if mapping is None else mapping, change)
    return from_mapping(CaptioningRecipe, mapping, f"config {path}")


def _changed(mapping: Any, change: str) -> Any:
    name, equals, text = change.partition("=")
    if not equals or not name:
        raise UserError(f"change {change!r} should read section.field=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    *sections, last = name.split(".")
    inner = mapping
    for section in sections:
        if not isinstance(inner, dict):
            break
        inner = inner.setdefault(section, {})
    if not isinstance(inner, dict):
        raise UserError(f"change {change!r} names a field of something that has none")
    inner[last] = value
    return mapping
