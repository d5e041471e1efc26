"""Reads the data of a captioning run: photos, captions, texts and boxes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from captioner.data.example import IN_TRAINING, Example, Problems
from captioner.data.instances import CocoInstances, read_synonyms
from captioner.data.parallel import read_lines
from captioner.data.readers import read_splits
from captioner.data.shapes import generate, shapes_examples
from captioner.errors import UserError, counted
from captioner.files import real_path
from captioner.runs.captioning_recipe import CaptioningRecipe, DataConfig
from captioner.text.tokenizer import tokenize


@dataclass(frozen=True)
class CaptionData:
    """The photos of a run with their captions, and what else its objective needs.

    problems: sentences about what was left out or chosen. texts: captions without photos, for the
    reward of fluency. instances: boxes and segments, for the loss of grounding.
    """

    train: list[Example]
    validation: list[Example]
    problems: list[str]
    texts: list[list[str]]
    instances: CocoInstances | None

    @property
    def captions(self) -> list[list[str]]:
        """The words of all training captions."""
        return [words for example in self.train for words in example.words]

    def counts(self) -> list[str]:
        """A sentence for each split."""
        sentences = []
        for name, examples in (("training", self.train), ("validation", self.validation)):
            count = counted(sum(len(example.captions) for example in examples), "caption")
            sentences.append(f"{name}: {counted(len(examples), 'photo')}, {count}")
        return sentences


def read_data(recipe: CaptioningRecipe) -> CaptionData:
    """Read all that a recipe's `data` names and its objective needs."""
    train, validation, problems = read_training(recipe.data)
    texts, instances = list[list[str]](), None
    if recipe.data.texts is not None and recipe.objective.self_critical is not None:
        texts = [tokenize(line) for line in read_lines(recipe.data.texts)]
    if recipe.data.instances is not None:
        instances = CocoInstances([recipe.data.instances])
        instances.known_categories(read_synonyms())  # Refuses one without synonyms.
    few = recipe.validation.images or None
    return CaptionData(train, validation[:few], problems, texts, instances)


def read_training(data: DataConfig) -> tuple[list[Example], list[Example], list[str]]:
    """The training and the validation photos, and sentences about what was left out or chosen."""
    if data.format == "shapes":
        count = data.shapes.validation
        pictures = generate(count + data.shapes.train, data.shapes.seed, data.shapes.pictures)
        examples = shapes_examples(pictures)
        return examples[count:], examples[:count], []
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
    return train, validation, sentences


def _place(example: Example) -> object:
    """What tells a photo from others that have its name: its file, or its place in a shard."""
    path = example.path
    return real_path(path) if isinstance(path, Path) else path
