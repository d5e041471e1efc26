"""The translation task: reads parallel text, learns vocabularies, makes the translator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch

from captioner.data.batches import encode_pairs, report_cut
from captioner.data.example import Problems
from captioner.data.parallel import ParallelText, SentencePair, number_pairs, read_parallel
from captioner.errors import UserError
from captioner.evaluation.translations import evaluate_translations, sacrebleu_metrics
from captioner.files import write_json, write_text
from captioner.model_folders import MODEL, SCORES_FILE, model_folder
from captioner.outcomes import loading_workers
from captioner.runs.batches import TranslationBatches
from captioner.runs.translation_recipe import ParallelData, TextConfig, TranslationRecipe
from captioner.text import SubwordVocabulary, TextVocabulary, WordVocabulary
from captioner.text.plain_text import as_sentence
from captioner.training.distributed import Engine
from captioner.training.log import ShownExample
from captioner.translate.model import TranslationLoss
from captioner.translate.translator import Translator
from captioner.translate.translator_folder import (
    load_translator,
    load_vocabularies,
    save_translator,
    save_vocabularies,
)
from captioner.weight_files import fill

TRANSLATIONS = "translations.txt"
"""In a run's folder: the best model's translations of the validation sources, one a line."""

SHOWN = 8
"""Sentences shown in TensorBoard."""


class TranslationTask:
    """Trains a translator; see `captioner.runs.run.Task`."""

    parameter_groups: list[dict[str, Any]] | None = None

    def __init__(self, recipe: TranslationRecipe) -> None:
        self.recipe = recipe

    def read(self, folder: Path, resumed: bool) -> None:
        """Read the text, learn the vocabularies and make the translator with its first weights."""
        sacrebleu_metrics()  # Its package may be missing.
        recipe = self.recipe
        start = None
        if recipe.start_from is not None and not resumed:
            start = load_translator(model_folder(recipe.start_from))
        self.training, self.validation = read_texts(recipe.data)
        if resumed:
            source, target = load_vocabularies(folder, recipe.text.joint)
        elif start is not None:
            source, target = start.source, start.target
            if (source is target) != recipe.text.joint:
                joint = str(source is target).lower()
                raise UserError(f"text.joint should be {joint}, as in start_from")
        else:
            source, target = learn_vocabularies(self.training.pairs, recipe.text)
        torch.manual_seed(recipe.training.seed)
        model = recipe.model.make(len(source), len(target))
        if start is not None:
            refusal = f"start_from {recipe.start_from} does not fit this model"
            fill(model, start.model.state_dict(), refusal)
        self.translator = Translator(
            recipe.model,
            model,
            source,
            target,
            recipe.data.maximum_length,
            recipe.search,
            capitals=recipe.text.capitals,
        )
        self.loss = TranslationLoss(model, recipe.objective)

    def prepare(self, folder: Path, engine: Engine, resumed: bool) -> None:
        """Save the vocabularies and make the batches."""
        recipe, translator = self.recipe, self.translator
        source, target = translator.source, translator.target
        self.loss.to(engine.device)
        if engine.is_main and not resumed:
            save_vocabularies(folder, source, target)
        maximum_length, capitals = recipe.data.maximum_length, recipe.text.capitals
        self.data = []
        for name, text in (("training", self.training), ("validation", self.validation)):
            self.data.append(f"{name}: {len(text.pairs):,} pairs of sentences")
            if len(text.problems):
                self.data.append(text.problems.summary())
        self.data.append(f"vocabulary: {len(source):,} source and {len(target):,} target tokens")
        print("\n".join(self.data))
        examples, cut = encode_pairs(self.training.pairs, source, target, maximum_length)
        if cut:
            print(f"training: {report_cut('pair', cut, f'{maximum_length:,} tokens a side')}")
        self.validated = self.validation.pairs[: recipe.validation.sentences or None]
        read = ((each.line, as_sentence(each.source, capitals)[0]) for each in self.validated)
        long = [line for line, text in read if len(source.split(text)) > maximum_length]
        if long:
            print(f"validation: {report_cut('source', long, f'{maximum_length:,} tokens')}")
        # Sentences need no more than two workers.
        workers = min(2, loading_workers(engine.device, engine.local_world_size))
        tokens, seed = recipe.data.batch_tokens, recipe.training.seed
        self.batches = TranslationBatches(examples, tokens, seed, workers)

    def generate(self, rank: int, ranks: int) -> dict[int, str]:
        """Translations of the validation sources in the batches of a process, by number.

        Similar lengths are together, which needs less padding.
        """
        size = self.recipe.validation.batch_size
        lengths = [len(pair.source) for pair in self.validated]
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        batches = [order[first : first + size] for first in range(0, len(order), size)]
        generated: dict[int, str] = {}
        for numbers in batches[rank::ranks]:
            sources = [self.validated[number].source for number in numbers]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # Long sources were reported before.
                translations = self.translator.translate(sources, batch_size=len(sources))
            generated |= {n: each.text for n, each in zip(numbers, translations, strict=True)}
        return generated

    def score(self, translations: list[str]) -> dict[str, float]:
        """Scores of the validation translations."""
        references = [pair.target for pair in self.validated]
        self.scores = evaluate_translations(translations, references)
        return self.scores.scores

    def save(self, folder: Path, translations: list[str], scores: dict[str, float]) -> None:
        """Save the translator with its scores and signatures, and the translations, one a line."""
        save_translator(self.translator, folder / MODEL)
        write_json(folder / MODEL / SCORES_FILE, self.scores.to_dict())
        write_text(folder / TRANSLATIONS, "".join(f"{text}\n" for text in translations))

    def show(self, translations: list[str]) -> list[ShownExample]:
        """The first sentences with their translations."""
        shown = zip(self.validated[:SHOWN], translations, strict=False)
        return [
            ShownExample(f"line {pair.line}", f"{pair.source}\n\n**{text}**\n\n{pair.target}")
            for pair, text in shown
        ]


def read_texts(data: ParallelData) -> tuple[ParallelText, ParallelText]:
    """The training and the validation text."""
    if data.format == "numbers":
        numbers = data.numbers
        pairs = number_pairs(
            numbers.train + numbers.validation, numbers.seed, largest=numbers.largest
        )
        parts = pairs[: numbers.train], pairs[numbers.train :]
        training, validation = (ParallelText(part, Problems()) for part in parts)
        return training, validation
    files = (data.source, data.target), (data.validation_source, data.validation_target)
    training, validation = (
        read_parallel(cast(Path, source), cast(Path, target), data.on_problem)
        for source, target in files
    )
    return training, validation


def learn_vocabularies(
    pairs: Sequence[SentencePair], text: TextConfig
) -> tuple[TextVocabulary, TextVocabulary]:
    """The vocabularies of source and target; one object if joint."""
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if text.joint:
        both = _learn([*sides[0], *sides[1]], text)
        return both, both
    return _learn(sides[0], text), _learn(sides[1], text)


def _learn(texts: list[str], text: TextConfig) -> TextVocabulary:
    if text.kind == "words":
        return WordVocabulary.learn(texts, text.minimum_count, text.case)
    return SubwordVocabulary.learn(texts, text.size, text.case, text.method)
