"""The fields of a captioner's training config."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator
from typing_extensions import Self

from captioner.caption import DecoderConfig, ObjectiveConfig
from captioner.caption.base import CaptionDecoderConfig
from captioner.caption.folder import FORMAT, decoder_config, read_config
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.files import read_text
from captioner.model_folders import is_of_format, model_folder
from captioner.runs.caption_data import DataConfig
from captioner.schema import COUNT, SIZE, Config, FilePath, from_mapping, to_mapping
from captioner.training import TrainingConfig
from captioner.vision.encoder import EncoderConfig
from captioner.vision.encoders import RANDOM, encoder_config, family_of, make_encoder
from captioner.vision.preprocessing import Augmentation, Preprocessing

Score = Literal["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D", "exact match"]
SCORES: tuple[str, ...] = get_args(Score)


class EncoderRecipe(Config):
    """Which encoder reads the photos; its family has more fields.

    Without `train`, annotation vectors are computed once and stored, unless `features.store` is
    false. With it, a batch has all captions of a photo together, so that `training.batch_size`
    captions are of a fifth as many photos where each has five.
    """

    model_config = ConfigDict(extra="allow")  # The family's fields, validated by `_validate`.

    name: str = Field("vgg19", description="of the encoder; chooses its family")
    weights: str = Field(
        "imagenet",
        min_length=1,
        description="pretrained (the library's, downloaded on first use; imagenet is the same), "
        "random, a file, or a model, whose encoder and preprocessing fill the fields left out",
    )
    digest: str | None = Field(
        None,
        min_length=64,
        max_length=64,
        description="of these weights, as training prints it; others are refused",
    )
    train: bool = Field(False, description="train it along with the decoder")
    train_from: int = Field(
        1,
        ge=1,
        le=1_000,
        description="first of its stages that is trained, for a VGG one of five blocks of "
        "convolutions, for other networks one of ten groups of layers; those before stay as they "
        "are",
    )

    @model_validator(mode="before")
    @classmethod
    def _validate(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        ours = set(cls.model_fields) - {"name"}
        sizes = encoder_config({name: values[name] for name in values if name not in ours})
        return {**values, **dict(sizes)}

    @model_validator(mode="after")
    def _check(self) -> Self:
        stages = family_of(self.name).encoder.stages
        if self.train_from > stages:
            raise ValueError(f"train_from {self.train_from} is not at most {stages}")
        return self

    @classmethod
    def field_names(cls) -> list[str]:
        """Its fields and those of the families."""
        return sorted({*cls.model_fields, *EncoderConfig.field_names()})

    @property
    def config(self) -> EncoderConfig:
        """The network as the encoder takes it."""
        return family_of(self.name).config(name=self.name, **(self.model_extra or {}))

    @property
    def batch_norm_frozen(self) -> bool:
        """Whether batch normalisation stays as it is while the encoder is trained."""
        return self.weights != RANDOM


class FeaturesConfig(Config):
    """The feature store, which holds the annotation vectors of every photo in float16."""

    store: bool = Field(
        True,
        description="compute annotation vectors once, before training; otherwise the encoder "
        "reads the photos of each batch, which needs no disk and takes longer, and a photo that "
        "cannot be read ends the run",
    )
    folder: FilePath | None = Field(
        None,
        description="of the store, which runs may share; by default one in the run's folder, named "
        "by encoder and preprocessing",
    )
    mirror: bool = Field(
        False, description="store every training photo mirrored too, and train on either at random"
    )
    batch_size: int = Field(32, ge=1, le=SIZE, description="photos encoded at a time")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the encoder's products; bfloat16 is autocast"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mirror and not self.store:
            raise ValueError("mirror has no effect: features.store is false")
        return self


class ValidationConfig(Config):
    """Validation on generated captions, with the search of `search`."""

    score: Score = Field("CIDEr-D", description="decides which epoch is kept")
    images: int = Field(
        0, ge=0, le=COUNT, description="validate on the first N, two or more; 0 for all"
    )
    batch_size: int = Field(50, ge=1, le=SIZE, description="photos at a time")


class WordVectorsConfig(Config):
    """Word vectors to start from."""

    file: FilePath = Field(
        description="text file of GloVe's or word2vec's vectors, as long as decoder.embedding_size"
    )
    freeze: bool = Field(False, description="train no embedding, also of words that the file lacks")


class CaptioningRecipe(Config):
    """A whole captioning run."""

    data: DataConfig
    minimum_count: int = Field(
        5, ge=1, le=COUNT, description="occurrences of a word that enters the vocabulary"
    )
    start_from: FilePath | None = Field(
        None,
        description="packaged model, or folder of a model or a run: its weights and "
        "vocabulary are the first ones. New words are added; fields of encoder, decoder, "
        "preprocessing and search that are left out come from the model, and sizes, and an encoder "
        "that is not trained, must be its own",
    )
    preprocessing: Preprocessing = Field(default_factory=Preprocessing)
    augmentation: Augmentation = Field(default_factory=Augmentation)
    encoder: EncoderRecipe = Field(default_factory=EncoderRecipe)
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    decoder: Annotated[SerializeAsAny[CaptionDecoderConfig], BeforeValidator(decoder_config)] = (
        Field(default_factory=DecoderConfig)
    )
    word_vectors: WordVectorsConfig | None = Field(
        None, description="initial embeddings of words; random by default"
    )
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    search: SearchOptions = Field(default_factory=SearchOptions)
    validation: ValidationConfig = Field(default_factory=ValidationConfig)

    @model_validator(mode="after")
    def _check(self) -> Self:
        learned = self.encoder.weights != RANDOM or self.start_from is not None
        if self.decoder.standardise and self.encoder.train and not learned:
            raise ValueError(
                "decoder.standardise takes annotation vectors as they are before training, and an "
                "encoder of random weights does not stay near them"
            )
        if self.features.mirror and self.encoder.train:
            raise ValueError(
                "features.mirror is for stored features; encoder.train stores none, and "
                "augmentation.mirror is for that"
            )
        if self.augmentation.changes and not self.photos_in_step:
            raise ValueError(
                "augmentation has no effect: features are stored, and neither encoder.train nor "
                "features.store false has photos read in the step"
            )
        if self.word_vectors is not None and self.start_from is not None:
            raise ValueError("word_vectors have no effect: start_from gives the embeddings")
        critical = self.objective.self_critical
        if self.data.texts is not None and (critical is None or critical.fluency_weight == 0):
            raise ValueError(
                "data.texts has no effect without objective.self_critical.fluency_weight"
            )
        if (self.objective.grounding > 0) != (self.data.instances is not None):
            raise ValueError("objective.grounding and data.instances need each other")
        if self.data.instances is not None and (self.features.mirror or self.augmentation.changes):
            raise ValueError(
                "objective.grounding has boxes of the photos as they are; features.mirror and "
                "augmentation change them"
            )
        try:
            self.objective.check_selection(self.decoder.selection)
        except UserError as error:
            raise ValueError(error) from None
        return self

    @property
    def photos_in_step(self) -> bool:
        """Whether the encoder reads photos in every step, without a feature store."""
        return self.encoder.train or not self.features.store


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> CaptioningRecipe:
    """Read and validate a YAML config.

    changes: `section.field=value` overrides, with values in YAML.
    Raises `UserError` naming the file and the field that is unknown, ill-typed or out of range.
    """
    return captioning_recipe(read_mapping(path, changes), f"config {path}")


def captioning_recipe(mapping: Any, where: str) -> CaptioningRecipe:
    """Fill the plain values of a config from its model and its encoder, and validate them."""
    filled = with_encoder_sections(with_model_sections(mapping))
    return from_mapping(CaptioningRecipe, filled, where)


def with_model_sections(mapping: Any) -> Any:
    """Fill the encoder, decoder, preprocessing and search of a config, given as plain values.

    Fields left out come from the model of `start_from`. Those of encoder and preprocessing come
    from the model that `encoder.weights` names. Without a model, or with a file, nothing changes,
    nor does an encoder of another name or a decoder of another kind.
    Raises `UserError` if the model's config is invalid.
    """
    if not isinstance(mapping, dict):
        return mapping
    encoder = mapping.get("encoder")
    weights = encoder.get("weights") if isinstance(encoder, dict) else None
    names = ["encoder", "preprocessing"]
    if (eyes := _folder_of(weights)) is not None and is_of_format(eyes, FORMAT):
        mapping = _with_sections(mapping, eyes, names)
    if (start := _folder_of(mapping.get("start_from"))) is not None:
        mapping = _with_sections(mapping, start, [*names, "decoder", "search"])
    return mapping


def _folder_of(model: Any) -> Path | None:
    """The folder of a model; None for a file, or for something missing, which its reader names."""
    with contextlib.suppress(UserError):
        return model_folder(model) if isinstance(model, str) else None
    return None


def _with_sections(mapping: dict[str, Any], folder: Path, names: list[str]) -> dict[str, Any]:
    model = to_mapping(read_config(folder))
    sections = {name: model[name] for name in names}
    sections["encoder"]["weights"] = str(folder)
    for section, field in (("encoder", "name"), ("decoder", "kind")):
        own = mapping.get(section)
        if isinstance(own, dict) and own.get(field) not in (None, model[section][field]):
            sections.pop(section, None)
    given = {name: mapping.get(name, {}) for name in sections}
    filled = {n: {**sections[n], **own} for n, own in given.items() if isinstance(own, dict)}
    return {**mapping, **filled}


def with_encoder_sections(mapping: Any) -> Any:
    """Fill the preprocessing and `decoder.memory_size` of a config, given as plain values.

    Fields left out are those of the encoder's published weights; `resize_shorter` is in proportion
    to `size`. Raises `UserError` if the encoder's library is missing or does not know its name.
    """
    given = mapping if isinstance(mapping, dict) else {}
    encoder: Any = given.get("encoder", {})
    decoder: Any = given.get("decoder", {})
    preprocessing: Any = given.get("preprocessing", {})
    if not all(isinstance(section, dict) for section in (mapping, encoder, decoder, preprocessing)):
        return mapping
    try:
        family = family_of(encoder.get("name", "vgg19"))
    except ValueError:  # Validation names it.
        return mapping
    config = family.config.model_validate({"name": encoder["name"]} if "name" in encoder else {})
    published = family.encoder.published_preprocessing(config)
    own = {} if published is None else to_mapping(published)
    standard, size = published or Preprocessing(), preprocessing.get("size")
    if isinstance(size, int) and preprocessing.get("resize", standard.resize) == "crop":
        own["resize_shorter"] = standard.resize_shorter * size // standard.size
    if own:
        preprocessing = {**own, **preprocessing}
    if "memory_size" not in decoder:
        has_one_size = hasattr(family.encoder, "annotation_size")
        sized = family.encoder if has_one_size else make_encoder(config)
        decoder = {**decoder, "memory_size": sized.annotation_size}
    return {**mapping, "decoder": decoder, "preprocessing": preprocessing}


def read_mapping(path: str | Path, changes: Sequence[str] = ()) -> Any:
    """The plain values of a YAML config with the changes; raises `UserError` for invalid YAML."""
    try:
        mapping = _yaml(read_text(path, "config"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # Also an impossible date.
        mark = getattr(error, "problem_mark", None)
        reason = str(error).partition("\n")[0] if mark is None else f"line {mark.line + 1}"
        raise UserError(f"config {path} is not valid YAML ({reason})") from None
    return with_changes(mapping, changes)


def with_changes(mapping: Any, changes: Sequence[str]) -> Any:
    """The values with the `section.field=value` changes. Raises `UserError` for an invalid one."""
    for change in changes:
        mapping = _changed({} if mapping is None else mapping, change)
    return mapping


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the exponents of YAML 1.2: in YAML 1.1, 4e-4 is text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


def _yaml(text: str) -> Any:
    return yaml.load(text, _Loader)  # A safe loader: plain values only.


def _changed(mapping: Any, change: str) -> Any:
    name, equals, text = change.partition("=")
    if not equals or not name:
        raise UserError(f"change {change!r} should read section.field=value")
    try:
        value = _yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
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
