"""From a recipe to a translator: read the text, learn its tokens, train, keep the best."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from captioner.data.numbers import number_pairs
from captioner.data.pairs import encode_pairs, report_cut_sources
from captioner.data.parallel import ParallelText, SentencePair, read_parallel
from captioner.data.source_problems import OnProblem, Problems
from captioner.errors import UserError
from captioner.evaluation.translations import (
    TranslationScores,
    evaluate_translations,
    sacrebleu_metrics,
)
from captioner.fields import to_mapping
from captioner.files import write_json, write_text
from captioner.recipes.run_folder import check_run, locked_run_folder, run_engine
from captioner.recipes.translation_batches import TranslationBatches
from captioner.recipes.translation_config import ParallelData, TextConfig, TranslationRecipe
from captioner.text import SubwordVocabulary, TextVocabulary, WordVocabulary
from captioner.text.capitals import as_sentence
from captioner.text.vocabulary_files import load_text_vocabulary, save_text_vocabulary
from captioner.training import CHECKPOINT, Engine, ShownExample, Validation, train
from captioner.translate import TranslationLoss, Translator, save_translator
from captioner.translate.translator_folder import JOINT, SOURCE, TARGET

MODEL = "model"
"""In a run's folder: the folder of the best model."""

TRANSLATIONS = "translations.txt"
"""In a run's folder: the best model's translations of the validation sources, one a line."""

_SHOWN = 8
"""Sentences shown in TensorBoard."""


def train_translator(
    recipe: TranslationRecipe,
    folder: str | Path,
    resume: bool = False,
    device: torch.device | str = "cpu",
) -> Path:
    """Train a translator as the recipe says; returns the folder of the best model.

    folder: gets `config.json`, the vocabularies, `environment.json`, the checkpoint, the log, and
        `model/`, which is replaced whenever a validation is the best so far, with its translations
        beside it in `translations.txt` and its scores, with sacrebleu's signatures, in it.
    resume, device: as of `captioner.recipes.captioning.train_captioner`.
    Raises `UserError` for whatever is wrong with the text or the folder, which no other run may be
    training in, and where a package is missing.
    """
    folder = Path(folder)
    with run_engine(device) as engine, contextlib.ExitStack() as kept:
        with engine.fail_together():
            if engine.is_main:
                sacrebleu_metrics()  # Its package may be missing.
            check_run(recipe, folder, resume, engine)
            training, validation = read_texts(recipe.data)
            resumed = resume and (folder / CHECKPOINT).exists()
        kept.enter_context(locked_run_folder(recipe, folder, resume, engine))
        with engine.fail_together():
            if resumed:
                source, target = _saved_vocabularies(folder, recipe.text.joint)
            else:
                source, target = learn_vocabularies(training.pairs, recipe.text)
            if engine.is_main and not resumed:
                _save_vocabularies(folder, source, target)
            maximum_length = recipe.data.maximum_length
            pairs = validation.pairs[: recipe.validation.sentences or None]
            encoded = encode_pairs(training.pairs, source, target, maximum_length)
            for name, text in (("training", training), ("validation", validation)):
                print(f"{name}: {len(text.pairs):,} pairs of sentences")
                if len(text.problems):
                    print(text.problems.summary())
            print(f"vocabulary: {len(source):,} source and {len(target):,} target tokens")
            if encoded.truncated:
                print(f"training: {encoded.report(maximum_length)}")
            capitals = recipe.text.capitals
            read = (replace(each, source=as_sentence(each.source, capitals).text) for each in pairs)
            if cut := report_cut_sources(read, source, maximum_length):
                print(f"validation: {cut}")
            torch.manual_seed(recipe.training.seed)
            model = recipe.model.make(len(source), len(target)).to(engine.device)
            translator = Translator(
                recipe.model,
                model,
                source,
                target,
                maximum_length,
                recipe.search,
                capitals=capitals,
            )
        judge = TranslationJudge(translator, pairs, recipe, folder, engine)
        batches = TranslationBatches(
            encoded.examples, recipe.data.batch_tokens, recipe.training.seed
        )
        train(
            TranslationLoss(model, recipe.objective),
            batches,
            recipe.training,
            folder,
            Validation(judge.run, recipe.validation.score, judge.keep, judge.show, judge.save),
            resume,
            engine=engine,
        )
        print(f"the best model is in {folder / MODEL}")
    return folder / MODEL


def read_texts(data: ParallelData) -> tuple[ParallelText, ParallelText]:
    """The training and the validation text. Raises `UserError` as `read_parallel` does."""
    if data.format == "numbers":
        numbers = data.numbers
        pairs = number_pairs(
            numbers.train + numbers.validation, numbers.seed, largest=numbers.largest
        )
        parts = pairs[: numbers.train], pairs[numbers.train :]
        training, validation = (ParallelText(part, Problems("numbers", "refuse")) for part in parts)
        return training, validation
    files = (data.source, data.target), (data.validation_source, data.validation_target)
    training, validation = (
        read_parallel(cast(Path, source), cast(Path, target), cast(OnProblem, data.on_problem))
        for source, target in files
    )
    return training, validation


def learn_vocabularies(
    pairs: Sequence[SentencePair], text: TextConfig
) -> tuple[TextVocabulary, TextVocabulary]:
    """The vocabularies of source and target; the same object where they are joint."""
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if text.joint:
        both = _learn([*sides[0], *sides[1]], text)
        return both, both
    return _learn(sides[0], text), _learn(sides[1], text)


def _learn(texts: list[str], text: TextConfig) -> TextVocabulary:
    if text.kind == "words":
        return WordVocabulary.learn(texts, text.minimum_count, text.case)
    return SubwordVocabulary.learn(texts, text.size, text.case, text.method)


def _save_vocabularies(folder: Path, source: TextVocabulary, target: TextVocabulary) -> None:
    if source is target:
        save_text_vocabulary(source, folder / JOINT)
        return
    save_text_vocabulary(source, folder / SOURCE)
    save_text_vocabulary(target, folder / TARGET)


def _saved_vocabularies(folder: Path, joint: bool) -> tuple[TextVocabulary, TextVocabulary]:
    if joint:
        both = load_text_vocabulary(folder / JOINT)
        return both, both
    return load_text_vocabulary(folder / SOURCE), load_text_vocabulary(folder / TARGET)


class TranslationJudge:
    """What `captioner.training.Validation` asks for, of a translator that is being trained."""

    def __init__(
        self,
        translator: Translator,
        pairs: Sequence[SentencePair],
        recipe: TranslationRecipe,
        folder: Path,
        engine: Engine,
    ) -> None:
        """Judge by the translations of these pairs' sources."""
        self.translator, self.pairs, self.recipe = translator, pairs, recipe
        self.folder, self.engine = folder, engine
        self.translations: list[str] = []
        self.scores: TranslationScores | None = None

    def run(self) -> dict[str, float]:
        """Translate together with the other processes; process 0 gives the scores."""
        batch_size = self.recipe.validation.batch_size
        sources = [pair.source for pair in self.pairs]
        self.translations = free_running(self.translator, sources, batch_size, self.engine)
        with self.engine.fail_together():
            if not self.engine.is_main:
                return {}
            references = [pair.target for pair in self.pairs]
            self.scores = evaluate_translations(self.translations, references)
            return self.scores.as_dict()

    def keep(self, scores: dict[str, float]) -> None:
        """Save the translator, its scores with their signatures, and its translations."""
        save_translator(self.translator, self.folder / MODEL)
        if self.scores is not None:
            write_json(self.folder / MODEL / "scores.json", to_mapping(self.scores))
        write_text(self.folder / TRANSLATIONS, "".join(f"{text}\n" for text in self.translations))

    def save(self, folder: Path) -> None:
        """Save the translator alone."""
        save_translator(self.translator, folder)

    def show(self) -> list[ShownExample]:
        """The first few sentences with their translations."""
        shown = zip(self.pairs[:_SHOWN], self.translations, strict=False)
        return [
            ShownExample(f"line {pair.line}", f"{pair.source}\n\n**{text}**\n\n{pair.target}")
            for pair, text in shown
        ]


def free_running(
    translator: Translator, sources: Sequence[str], batch_size: int, engine: Engine
) -> list[str]:
    """The translations a user would get, in order.

    The processes take whole batches of sentences of about one length in turn, so that the numbers
    do not depend on how many there are; each gets all translations.
    """
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    own: dict[int, str] = {}
    with engine.fail_together(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Long sources, which were told before.
        for batch in batches[engine.rank :: engine.size]:
            found = translator.translate([sources[place] for place in batch], None, batch_size)
            own |= zip(batch, (translation.text for translation in found), strict=True)
    texts: dict[int, str] = {}
    for share in engine.gather(own):
        texts |= share
    if len(texts) != len(sources):
        raise UserError("some validation sentences were translated by no process")
    return [texts[place] for place in range(len(sources))]
