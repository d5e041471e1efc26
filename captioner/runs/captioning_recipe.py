"""Every field of a training config, in one place; `configs/*.yaml` are made of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from captioner.caption import DecoderConfig, ObjectiveConfig
from captioner.data.readers import READERS
from captioner.data.shapes import ShapesConfig
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.fields import from_mapping
from captioner.files import read_text
from captioner.training import TrainingConfig
from captioner.vision.augmentation import Augmentation
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import STAGES, VGGConfig
from captioner.vision.weights import RANDOM

DATA_FORMATS = (*READERS, "shapes")
SCORES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D", "exact match")


@dataclass(frozen=True)
class ShapesData:
    """The generated set: so many pictures for each split, from `seed`, as `pictures` says.

    Raises `UserError` for values out of range.
    """

    train: int = 8000
    validation: int = 500
    seed: int = 0
    pictures: ShapesConfig = field(default_factory=ShapesConfig)

    def __post_init__(self) -> None:
        # CIDEr-D, which validation always gives, is not defined for one picture.
        for name, least in (("train", 1), ("validation", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"shapes {name} {getattr(self, name)} is not at least {least}")


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
    archives: folders that the other paths lie in, and the zip file that each is unpacked from where
        it is not there yet.

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
    archives: dict[str, Path] = field(default_factory=dict)

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
    train: whether it is trained along; otherwise annotation vectors are computed once and stored,
        unless `features.store` is false. A batch then has all captions of a photo together, and
        `training.batch_size` captions are of a fifth as many photos where each has five. Batch
        normalisation sees each process's share of these.
    train_from: the first of its five blocks of convolutions that is trained, 1 for all of them, 5
        for the last alone; those before stay as they are. Its learning rate is
        `training.encoder_learning_rate`.
    freeze_batch_norm: whether batch normalisation stays as it is in the trained blocks as well; by
        default it does where the weights are not random.

    Raises `UserError` as `VGGConfig` does, for weights that are not named, and for a field that
    has no effect.
    """

    name: str = "vgg19"
    width: float = 1.0
    weights: str = "imagenet"
    train: bool = False
    train_from: int = 1
    freeze_batch_norm: bool | None = None

    def __post_init__(self) -> None:
        if not self.weights:
            raise UserError("encoder weights are not named: imagenet, random, or a path")
        _ = self.config
        if not 1 <= self.train_from <= STAGES:
            raise UserError(f"encoder train_from {self.train_from} is not between 1 and {STAGES}")
        if self.freeze_batch_norm is not None and not self.name.endswith("_bn"):
            raise UserError(f"encoder freeze_batch_norm has no effect: {self.name} has none")
        if not self.train and (self.train_from > 1 or self.freeze_batch_norm is not None):
            raise UserError("encoder train_from and freeze_batch_norm have no effect without train")

    @property
    def config(self) -> VGGConfig:
        """The network as the encoder takes it."""
        return VGGConfig(self.name, self.width)

    @property
    def batch_norm_frozen(self) -> bool:
        """Whether batch normalisation stays as it is while the encoder is trained."""
        if self.freeze_batch_norm is None:
            return self.weights != RANDOM
        return self.freeze_batch_norm


@dataclass(frozen=True)
class FeaturesConfig:
    """The feature store.

    store: whether there is one: the annotation vectors of every photo are computed once, before
        training, and stored. Otherwise an encoder that is not trained reads the photos of each
        batch anew, which needs no disk and takes longer; one that is trained does so in any case.
        A photo that cannot be read then ends the run when it is met, whatever `data.on_problem`.
    folder: where it lies; by default `features` in the run's folder. Runs may share one.
    mirror: also store every training photo mirrored, and train on either, at random.
    batch_size: photos encoded at a time.
    precision: of the encoder's products, `float32`, or `bfloat16` (autocast), which is quicker
        where the machine has instructions for it. What is stored is float16 in any case.

    Raises `UserError` for a batch size below 1, an unknown precision, and a field that has no
    effect without a store.
    """

    store: bool = True
    folder: Path | None = None
    mirror: bool = False
    batch_size: int = 32
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.precision not in ("float32", "bfloat16"):
            raise UserError(
                f"features precision {self.precision!r} is not one of float32, bfloat16"
            )
        if self.batch_size < 1:
            raise UserError(f"features batch_size {self.batch_size} is not at least 1")
        for name in ("folder", "mirror"):
            if not self.store and getattr(self, name):
                raise UserError(f"features {name} has no effect: features store is false")


@dataclass(frozen=True)
class ValidationConfig:
    """Free-running validation: captions are searched for as a user would get them.

    score: what decides which epoch is kept; one of `SCORES`.
    images: validate on the first so many only, two or more; 0 for all.
    batch_size: photos at a time.

    Raises `UserError` for values out of range.
    """

    score: str = "CIDEr-D"
    images: int = 0
    batch_size: int = 50

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise UserError(f"score {self.score!r} is not one of {', '.join(SCORES)}")
        if self.images < 0 or self.images == 1:
            raise UserError(f"validation images {self.images} is neither 0 nor at least 2")
        if self.batch_size < 1:
            raise UserError(f"validation batch_size {self.batch_size} is not at least 1")


@dataclass(frozen=True)
class WordVectorsConfig:
    """Word vectors to start from.

    file: a text file of GloVe's or word2vec's; see `captioner.caption.word_vectors`. Its vectors
        must be as long as the decoder's embedding_size.
    freeze: train no embedding, those of words that the file lacks among them.
    """

    file: Path
    freeze: bool = False


@dataclass(frozen=True)
class CaptioningRecipe:
    """A whole captioning run. The sections are documented at their classes.

    minimum_count: how often a word occurs in the training captions to be in the vocabulary.
    word_vectors: what the embeddings of words start from; random numbers if not given.
    start_from: a model folder, or the checkpoint of a run, whose weights this run starts with. Its
        vocabulary is then this run's, whatever `minimum_count` is; sizes must be the same. An
        encoder that is trained along starts with its weights as well; any other must be the same.
    augmentation: of training photos, where the encoder reads them in the step: it is trained along,
        or `features.store` is false.

    Raises `UserError` for values out of range, and for a field that another leaves no effect.
    """

    data: DataConfig
    minimum_count: int = 5
    start_from: Path | None = None
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    augmentation: Augmentation = field(default_factory=Augmentation)
    encoder: EncoderRecipe = field(default_factory=EncoderRecipe)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    word_vectors: WordVectorsConfig | None = None
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchOptions = field(default_factory=SearchOptions)
    validation: ValidationConfig = field(default_factory=ValidationConfig)

    def __post_init__(self) -> None:
        if self.minimum_count < 1:
            raise UserError(f"minimum_count {self.minimum_count} is not at least 1")
        learned = self.encoder.weights != "random" or self.start_from is not None
        if self.decoder.standardise and self.encoder.train and not learned:
            raise UserError(
                "decoder standardise takes annotation vectors as they are before training, and an "
                "encoder of random weights does not stay near them"
            )
        if self.training.encoder_learning_rate is not None and not self.encoder.train:
            raise UserError("training encoder_learning_rate has no effect without encoder train")
        if self.features.mirror and self.encoder.train:
            raise UserError(
                "features mirror is for stored features; encoder train stores none, and "
                "augmentation mirror is for that"
            )
        if self.augmentation.changes and not self.photos_in_step:
            raise UserError(
                "augmentation has no effect: features are stored, and neither encoder train nor "
                "features store false has photos read in the step"
            )
        self.objective.check_selection(self.decoder.selection)
        if self.word_vectors is not None and self.start_from is not None:
            raise UserError("word_vectors have no effect: start_from gives the embeddings")

    @property
    def photos_in_step(self) -> bool:
        """Whether the encoder reads the photos of every step, and no feature store is made."""
        return self.encoder.train or not self.features.store


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> CaptioningRecipe:
    """Read and validate a YAML config.

    changes: `section.field=value`, each put over what the file says, the value read as YAML.
    Raises `UserError` naming the file and the field that is unknown, ill-typed or out of range.
    """
    return from_mapping(CaptioningRecipe, read_mapping(path, changes), f"config {path}")


def read_mapping(path: str | Path, changes: Sequence[str] = ()) -> Any:
    """What a YAML config holds, as plain values, with the changes put over it.

    Raises `UserError` naming the file, when it is no YAML.
    """
    try:
        mapping = _yaml(read_text(path, "config"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise UserError(f"config {path} is not valid YAML{line}") from None
    except RecursionError:
        raise UserError(f"config {path} is nested too deep to be read") from None
    except ValueError as error:  # A date that is none; a number of 5,000 digits.
        raise UserError(f"config {path} holds a value that cannot be read ({error})") from None
    for change in changes:
        mapping = _changed({} if mapping is None else mapping, change)
    return mapping


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with YAML 1.2's numbers: YAML 1.1 takes 4e-4 for text."""


_FLOAT = re.compile(
    r"""(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+[eE][-+]?[0-9]+
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
"""YAML 1.2.2, section 10.3.2, less the whole numbers, which are told apart as before."""

_FLOAT_TAG = "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _FLOAT_TAG]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_FLOAT_TAG, _FLOAT, list("-+0123456789."))


def _yaml(text: str) -> Any:
    return yaml.load(text, _Loader)  # The safe loader, which makes nothing but plain values.


def _changed(mapping: Any, change: str) -> Any:
    name, equals, text = change.partition("=")
    if not equals or not name:
        raise UserError(f"change {change!r} should read section.field=value")
    try:
        value = _yaml(text)
    except (yaml.YAMLError, ValueError):
        value = text
    except RecursionError:
        raise UserError(f"the value of change {name!r} is nested too deep to be read") from None
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
