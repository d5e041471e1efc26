"""The photos and captions of a captioning run: the config's section, and reading them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.data.example import Example, Problems
from captioner.data.readers import read_examples
from captioner.data.shapes import ShapesConfig, generate, shapes_examples
from captioner.data.table import read_splits
from captioner.errors import UserError
from captioner.schema import LENGTH, SEED, Config, FilePath


class ShapesData(Config):
    """The generated set."""

    train: int = Field(8000, ge=1, le=10_000_000, description="pictures to train on")
    validation: int = Field(
        500, ge=2, le=1_000_000, description="pictures to validate on; CIDEr-D needs two"
    )
    seed: int = Field(0, ge=0, le=SEED, description="of the pictures")
    pictures: ShapesConfig = Field(default_factory=ShapesConfig)


class DataConfig(Config):
    """Training and validation data. Paths start from the working folder."""

    removed: ClassVar[dict[str, str]] = {
        "archives": "unpack the archives with unzip, and give the folders",
    }

    format: Literal["coco", "karpathy", "flickr8k", "table", "shapes"] = Field(
        description="coco (captions_*.json), karpathy (dataset_*.json), flickr8k (a token file, "
        "also of Flickr30k), table (.csv, .tsv or .jsonl, a row a caption; without a split column "
        "validation photos are drawn), or shapes (generated, no files)"
    )
    annotations: FilePath | None = Field(None, description="the captions")
    images: FilePath | None = Field(None, description="the folder of the photos")
    train: str | None = Field("train", description="training split, as the format names it")
    validation: str | None = Field("val", description="validation split, as the format names it")
    validation_annotations: FilePath | None = Field(
        None, description="the validation captions, where they are in a file of their own"
    )
    on_problem: Literal["refuse", "skip"] = Field(
        "refuse", description="refuse to start when a record is bad, or skip and report it"
    )
    texts: FilePath | None = Field(
        None,
        description="people's captions without photos, one a line (.gz is unpacked), for "
        "objective.self_critical.fluency_weight",
    )
    maximum_length: int = Field(
        50, ge=1, le=LENGTH, description="words; longer training captions are cut, and counted"
    )
    instances: FilePath | None = Field(
        None, description="COCO's boxes and segments of training photos, for objective.grounding"
    )
    shapes: ShapesData = Field(default_factory=ShapesData)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.format != "shapes" and self.annotations is None:
            raise ValueError(f"annotations is missing; format {self.format!r} needs it")
        return self


def read_training(data: DataConfig) -> tuple[list[Example], list[Example], list[str]]:
    """The training and the validation photos, and sentences about what was left out or chosen."""
    if data.format == "shapes":
        validation = data.shapes.validation
        count = validation + data.shapes.train
        pictures = generate(count, data.shapes.seed, data.shapes.pictures)
        examples = shapes_examples(pictures)
        return examples[validation:], examples[:validation], []
    assert data.annotations is not None  # Checked by DataConfig.
    splits = (data.train, data.validation)
    problems = Problems(data.on_problem), Problems(data.on_problem)
    if data.format == "table" and data.validation_annotations is None:
        train, val = read_splits(data.annotations, data.images, splits, problems[0])
        for examples, split in zip((train, val), splits, strict=True):
            if not examples:
                raise UserError(f"{data.annotations}: no captioned images are left in {split!r}")
    else:
        files = (data.annotations, data.validation_annotations or data.annotations)
        train, val = (
            read_examples(data.format, file, data.images, split, each)
            for file, split, each in zip(files, splits, problems, strict=True)
        )
        if any(each.note for each in problems):
            raise UserError(
                f"of {files[0]} and {files[1]}, one has no splits: set data.train or "
                "data.validation to null to read it whole"
            )
    shared = {each.name for each in train} & {each.name for each in val}
    if shared:
        raise UserError(
            f"{len(shared)} photos are in both the training and the validation split, "
            f"{sorted(shared)[0]!r} among them; give the validation photos as another split "
            "(data.validation) or file (data.validation_annotations)"
        )
    return train, val, list(dict.fromkeys(problems[0].sentences + problems[1].sentences))
