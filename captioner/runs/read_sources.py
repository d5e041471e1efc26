"""Reads the photos and captions of a recipe, in any format."""

from __future__ import annotations

import os
from collections.abc import Sequence

from captioner.data.examples import caption_words
from captioner.data.readers import read_captions
from captioner.data.records import CaptionSet
from captioner.data.shapes import ShapesConfig, ShapesExample, generate
from captioner.data.source import Source
from captioner.data.table import read_splits
from captioner.errors import UserError
from captioner.runs.captioning_recipe import DataConfig
from captioner.vision.find_images import find_images
from captioner.vision.images import load_image

UNSEEN_SEED = 1_000_003
"""The seed of `unseen_shapes`; not to be trained on."""


def read_split(
    format: str,
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str] | None,
    split: str | None,
    on_problem: str = "refuse",
) -> Source:
    """One split of a data set on disk, as `read_captions` reads it; it has a photo at least."""
    captioned = read_captions(format, annotations, images, split, on_problem)
    return _source(captioned, f"{annotations}: there are no captioned images in split {split!r}")


def _source(captioned: CaptionSet, refusal: str) -> Source:
    """The images as a `Source`. Raises `UserError` with this sentence if there are none."""
    paths = [image.path for image in captioned.images]
    if not paths:
        raise UserError(refusal)
    return Source(
        image_ids=[image.image_id for image in captioned.images],
        captions=[list(image.captions) for image in captioned.images],
        words=[caption_words(image) for image in captioned.images],
        open_photo=lambda row: load_image(paths[row]),
        report=captioned.problems.summary() if len(captioned.problems) else "",
        note=captioned.note,
    )


def read_sources(data: DataConfig) -> tuple[Source, Source]:
    """The training and the validation photos. Raises `UserError` as the format's reader does."""
    if data.format == "shapes":
        counts = (data.shapes.validation, data.shapes.train)
        examples = generate(sum(counts), data.shapes.seed, data.shapes.pictures)
        validation_examples, train_examples = examples[: counts[0]], examples[counts[0] :]
        return shapes_source(train_examples, counts[0]), shapes_source(validation_examples)
    assert data.annotations is not None  # Checked by DataConfig.
    splits = (data.train, data.validation)
    if data.format == "table" and data.validation_annotations is None:
        captioned = read_splits(data.annotations, data.images, splits, data.on_problem)
        train, validation = (
            _source(each, f"{data.annotations}: there are no captioned images in split {split!r}")
            for each, split in zip(captioned, splits, strict=True)
        )
    else:
        files = (data.annotations, data.validation_annotations or data.annotations)
        train, validation = (
            read_split(data.format, file, data.images, split, data.on_problem)
            for file, split in zip(files, splits, strict=True)
        )
        if train.note or validation.note:
            raise UserError(
                f"of {files[0]} and {files[1]}, one has no splits: set data.train or "
                "data.validation to null to read it whole"
            )
    shared = set(train.names) & set(validation.names)
    if shared:
        raise UserError(
            f"{len(shared)} photos are in both the training and the validation split, "
            f"{sorted(shared)[0]!r} among them; give the validation photos as another split "
            "(data.validation) or file (data.validation_annotations)"
        )
    return train, validation


def shapes_source(examples: Sequence[ShapesExample], first: int = 0) -> Source:
    """Generated pictures as the photos of a split, named shapes-`first` and so on."""
    return Source(
        image_ids=[f"shapes-{first + index}" for index in range(len(examples))],
        captions=[[example.caption] for example in examples],
        words=[[list(example.words)] for example in examples],
        open_photo=lambda row: examples[row].image,
    )


def photo_source(paths: Sequence[str]) -> Source:
    """Photos without captions, named by their paths.

    paths: files, folders and patterns. Raises `UserError` if they name no photo.
    """
    files = find_images(paths)
    if not files:
        raise UserError(f"there are no photos in {', '.join(map(str, paths))}")
    return Source(
        image_ids=[str(file) for file in files],
        captions=[[] for _ in files],
        words=[[] for _ in files],
        open_photo=lambda row: load_image(files[row]),
    )


def unseen_shapes(image_size: int, count: int) -> list[ShapesExample]:
    """Generated pictures of image_size x image_size that no training set has."""
    return generate(count, UNSEEN_SEED, ShapesConfig(image_size=image_size))
