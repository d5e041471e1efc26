"""Reads the photos and captions of a captioning run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from captioner.data.example import IN_TRAINING, Example, Problems
from captioner.data.readers import read_splits
from captioner.data.shapes import generate, shapes_examples
from captioner.errors import UserError, counted
from captioner.files import real_path
from captioner.runs.captioning_recipe import DataConfig


class CaptionData(NamedTuple):
    """The photos of a run with their captions, and sentences about what was left out or chosen."""

    train: list[Example]
    validation: list[Example]
    problems: list[str]

    @property
    def captions(self) -> list[list[str]]:
        """The words of all training captions."""
        return [words for example in self.train for words in example.words]

    def counts(self, longest: int) -> list[str]:
        """A sentence for each split, and one on the captions that are cut to `longest` words."""
        sentences = []
        for name, examples in (("training", self.train), ("validation", self.validation)):
            count = counted(sum(len(example.captions) for example in examples), "caption")
            sentences.append(f"{name}: {counted(len(examples), 'photo')}, {count}")
        if too_long := sum(len(words) > longest for words in self.captions):
            sentences.append(f"{counted(too_long, 'caption')} cut to {longest} words")
        return sentences


def read_training(data: DataConfig, validation_photos: int = 0) -> CaptionData:
    """Read the training photos, and the first so many to validate on, or all."""
    few = validation_photos or None
    if data.format == "shapes":
        count = data.shapes.validation
        pictures = generate(count + data.shapes.train, data.shapes.seed, data.shapes.pictures)
        examples = shapes_examples(pictures)
        return CaptionData(examples[count:], examples[:count][:few], [])
    assert data.annotations is not None  # Checked by DataConfig.
    other_file = data.validation_annotations
    files = [(data.annotations, [data.train, data.validation])]
    if other_file is not None:
        files = [(data.annotations, [data.train]), (other_file, [data.validation])]
    examples_of_splits, sentences = [], []
    for file, splits in files:
        problems = Problems(
            data.on_problem,
            skipping=IN_TRAINING,
            naming_images="--set data.images=...",
            by_captioner=data.captions_by_captioner,
            draws_splits=other_file is None,
        )
        examples_of_splits += read_splits(data.format, file, data.images, splits, problems)
        sentences += problems.sentences
    train, validation = examples_of_splits
    places = {_place(example) for example in validation}
    shared = sorted(example.name for example in train if _place(example) in places)
    if shared:
        raise UserError(
            f"the training and the validation split share {counted(len(shared), 'photo')}, "
            f"{shared[0]!r} among them; give the validation photos as another split "
            "(data.validation) or file (data.validation_annotations)"
        )
    return CaptionData(train, validation[:few], sentences)


def _place(example: Example) -> object:
    """What tells a photo from others that have its name: its file, or its place in a shard."""
    path = example.path
    return real_path(path) if isinstance(path, Path) else path
