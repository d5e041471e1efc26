"""The fields of a captioner's training config."""

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from captioner.data.shapes import ShapesConfig
from captioner.decoding.options import SearchOptions
from captioner.models.caption_config import AnyDecoderConfig, DecoderConfig
from captioner.models.caption_losses import ObjectiveConfig
from captioner.schema import COUNT, Count, FilePath, Length, NameOrPath, Section, Seed, Size
from captioner.training.config import TrainingConfig
from captioner.vision.encoder_config import EncoderConfig
from captioner.vision.encoder_families import ENCODERS
from captioner.vision.preprocessing import Augmentation, Preprocessing

Score = Literal["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D", "exact match"]
SCORES: tuple[str, ...] = get_args(Score)


class ShapesData(Section):
    """The generated set."""

    train: int = Field(8000, ge=1, le=10_000_000, description="pictures to train on")
    validation: int = Field(500, ge=2, le=1_000_000)
    """to validate on; CIDEr-D needs two"""
    seed: Seed = Field(0, description="of the pictures")
    pictures: ShapesConfig = Field(default_factory=ShapesConfig)


class DataConfig(Section):
    """Training and validation data. Paths start from the working folder."""

    format: Literal["coco", "karpathy", "flickr8k", "table", "shapes"]
    """coco (captions_*.json), karpathy (dataset_*.json), flickr8k (a token file, also of
    Flickr30k), table (CSV, TSV, JSON lines, JSON or Parquet, a row a caption; shards in .tar; or a
    folder of photos with texts, metadata.jsonl or descriptions), or shapes (generated, no files);
    validation photos are drawn where there are no splits"""
    annotations: FilePath | None = Field(None, description="the captions")
    images: FilePath | None = Field(None, description="folder of photos; default: the captions'")
    train: str | None = Field("train", description="training split, as the format names it")
    validation: str | None = Field("val", description="validation split, as the format names it")
    validation_annotations: FilePath | None = None
    """the validation captions, if they are in another file"""
    on_problem: Literal["refuse", "skip"] = "refuse"
    """refuse to start when a record is bad, or skip and report it"""
    captions_by_captioner: bool = False
    """learn from captions in a folder that captioner wrote, too"""
    texts: FilePath | None = None
    """captions, one a line, .gz or not, for self_critical.fluency_weight"""
    maximum_length: Length = Field(50, description="words; longer training captions are cut")
    instances: FilePath | None = None
    """COCO's boxes and segments of training photos, for objective.grounding"""
    shapes: ShapesData = Field(default_factory=ShapesData)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.format != "shapes" and self.annotations is None:
            raise ValueError(f"annotations is missing; format {self.format!r} needs it")
        return self


class EncoderRecipe(Section):
    """Which encoder reads the photos; its family has more fields.

    Without `train`, annotation vectors are computed once and stored, unless `features.store` is
    false. With it, a batch has all captions of a photo together, so that `training.batch_size`
    captions are of a fifth as many photos where each has five.
    """

    model_config = ConfigDict(extra="allow")  # The family's fields, validated by `_validate`.

    name: str = Field("vgg19", description="name of the encoder; chooses its family")
    weights: NameOrPath = "imagenet"
    """pretrained (the library's, downloaded on first use; imagenet is the same), random, a file, or
    a model, whose encoder and preprocessing fill the fields left out"""
    digest: str | None = Field(None, min_length=64, max_length=64)
    """of the weights, as training prints it"""
    train: bool = Field(False, description="train it along with the decoder")
    train_from: int = Field(1, ge=1, le=1_000)
    """first trained stage; a VGG has five blocks of convolutions, other networks ten groups of
    layers"""

    @model_validator(mode="before")
    @classmethod
    def _validate(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        ours = set(cls.model_fields) - {"name"}
        sizes = EncoderConfig.of_kind({name: values[name] for name in values if name not in ours})
        return {**values, **dict(sizes)}

    @model_validator(mode="after")
    def _check(self) -> Self:
        stages = ENCODERS[type(self.config)].stages
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
        return EncoderConfig.of_kind({"name": self.name, **(self.model_extra or {})})


class FeaturesConfig(Section):
    """The feature store, which holds the annotation vectors of every photo in float16."""

    store: bool = True
    """compute annotation vectors once, before training; otherwise every batch reads its photos: no
    disk, but slower, and an unreadable photo ends the run"""
    folder: FilePath | None = None
    """of the store, which runs may share; by default in the run's folder"""
    mirror: bool = False
    """store every training photo mirrored too, and train on either at random"""
    batch_size: Size = Field(32, description="photos encoded at a time")
    precision: Literal["float32", "bfloat16"] = "float32"
    """of the encoder's products; bfloat16 is autocast"""


class ValidationConfig(Section):
    """Validation on generated captions, with the search of `search`."""

    score: Score = Field("CIDEr-D", description="decides which epoch is kept")
    start: bool = True
    """a started model counts as epoch 0; false where it learns what the score does not see, such
    as grounding"""
    images: int = Field(0, ge=0, le=COUNT, description="the first N photos, N > 1; 0 for all")
    batch_size: Size = Field(50, description="photos at a time")


class CaptioningRecipe(Section):
    """A whole captioning run."""

    data: DataConfig
    minimum_count: Count = Field(5, description="occurrences of a word that enters the vocabulary")
    start_from: NameOrPath | None = None
    """packaged model, hf://user/name, or folder of a model or a run: its weights and vocabulary are
    the first ones. New words are added; fields of encoder, decoder, preprocessing and search that
    are left out come from the model, and sizes, and an encoder that is not trained, must be its
    own"""
    preprocessing: Preprocessing = Field(default_factory=Preprocessing)
    augmentation: Augmentation = Field(default_factory=Augmentation)
    encoder: EncoderRecipe = Field(default_factory=EncoderRecipe)
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    decoder: AnyDecoderConfig = Field(default_factory=DecoderConfig)
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    search: SearchOptions = Field(default_factory=SearchOptions)
    validation: ValidationConfig = Field(default_factory=ValidationConfig)

    @model_validator(mode="after")
    def _check(self) -> Self:
        mirrors = self.features.mirror
        augments = self.augmentation != Augmentation()
        if (mirrors and self.photos_in_step) or (augments and not self.photos_in_step):
            each_step = "augmentation is for photos that are read in every step"
            raise ValueError(f"{each_step}, and features.mirror for stored features")
        if (self.objective.grounding > 0) != (self.data.instances is not None):
            raise ValueError("objective.grounding and data.instances need each other")
        if self.data.instances is not None and (mirrors or augments):
            changing = "features.mirror and augmentation change them"
            raise ValueError(f"objective.grounding has boxes of the photos as they are; {changing}")
        self.objective.check_selection(self.decoder.selection)
        return self

    @property
    def photos_in_step(self) -> bool:
        """Whether the encoder reads photos in every step, without a feature store."""
        return self.encoder.train or not self.features.store
