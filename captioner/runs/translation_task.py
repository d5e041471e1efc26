"""The translation task: its config, text, vocabularies, translator and batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, cast

import torch
from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.backends.torch_translations import (
    TorchTranslations,
    load_translation_model,
    make_model,
)
from captioner.data.example import Problems
from captioner.data.parallel import LARGEST, SentencePair, number_pairs, read_parallel
from captioner.decoding.options import TranslationSearch
from captioner.errors import UserError, counted
from captioner.evaluation.translations import evaluate_translations, sacrebleu_metrics
from captioner.files import write_text
from captioner.model_folders import MODEL, ModelFolder, model_folder
from captioner.models.translation_config import TranslationModelConfig
from captioner.models.translation_model import TranslationLoss, TranslationObjective
from captioner.module_weights import fill, make_trainable
from captioner.outcomes import loading_workers
from captioner.runs.batches import TranslationBatches, digest_of, encode_pairs
from captioner.runs.photos import check_data
from captioner.schema import COUNT, Count, FilePath, Length, NameOrPath, Section, Seed, Size
from captioner.text import SentenceVocabulary, SubwordVocabulary, WordVocabulary
from captioner.text.languages import Capitals
from captioner.text.sentences import load_vocabularies, save_vocabularies
from captioner.text.token_batches import PairExample, collate_pairs
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Processes
from captioner.training.loop import Generated, Validated
from captioner.translate.folder import save_translator
from captioner.translate.translator import Translator

TASK = "translate"

TRANSLATIONS = "translations.txt"
"""In a run's folder: the best model's translations of the validation sources, one a line."""

TRANSLATION_REFERENCES = "references.txt"
"""In a run's folder: the references of these, one a line."""


MANY_TOKENS = 2.5
"""Tokens a word, above which a vocabulary cuts words into little more than letters."""

MEASURED = 1000  # Pairs, by which that is measured.


class NumbersData(Section):
    """The generated set: different numbers, in words and in figures."""

    train: int = Field(3000, ge=1, le=LARGEST + 1, description="numbers to train on")
    validation: int = Field(500, ge=1, le=LARGEST + 1, description="numbers to validate on")
    largest: int = Field(9_999, ge=0, le=LARGEST, description="the largest; the smallest is 0")
    seed: Seed = Field(0, description="of the draw")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.train + self.validation > self.largest + 1:
            raise ValueError(f"train and validation are more than the numbers to {self.largest}")
        return self


_TEXTS = ("source", "target", "validation_source", "validation_target")


class ParallelData(Section):
    """Training and validation data. Paths start from the working folder."""

    format: Literal["parallel", "numbers"] = "parallel"
    """parallel: two text files line by line, of which .gz is unpacked; numbers: generated, no
    files"""
    source: FilePath | None = Field(None, description="training text to translate")
    target: FilePath | None = Field(None, description="its translation")
    validation_source: FilePath | None = Field(None, description="validation text to translate")
    validation_target: FilePath | None = Field(None, description="its translation")
    on_problem: Literal["refuse", "skip"] = "refuse"
    """refuse to start when a sentence is empty, or skip and report it"""
    maximum_length: Length = Field(100, description="tokens; longer sentences are cut")
    batch_tokens: int = Field(3000, ge=1, le=10_000_000)
    """tokens a step with padding, on the longer side, over all processes"""
    numbers: NumbersData = Field(default_factory=NumbersData)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in _TEXTS:
            if self.format == "parallel" and getattr(self, name) is None:
                raise ValueError(f"{name} is missing; format 'parallel' needs it")
        return self


class TextConfig(Section):
    """How text is cut into tokens, learned from the training text or as in `start_from`."""

    kind: Literal["words", "subwords"] = Field("words", description="what a token is")
    joint: bool = Field(False, description="one vocabulary for both sides")
    case: Literal["keep", "lower", "sentence"] = "keep"
    """lower: small letters for all; sentence (words only): the first word of a sentence as it is
    written elsewhere"""
    capitals: Capitals = "keep"
    """lines in capitals, or begun without one: as they are, or as sentences"""
    minimum_count: Count = Field(2, description="occurrences of a word that enters the vocabulary")
    size: int = Field(8000, ge=1, le=1_000_000, description="subwords, of both sides where joint")
    method: Literal["unigram", "bpe"] = Field("unigram", description="of learning subwords")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "subwords" and self.case == "sentence":
            raise ValueError("case 'sentence' is of words; of subwords it is one of keep, lower")
        return self


class TranslationValidation(Section):
    """Validation on generated translations, with the search of `search`."""

    score: Literal["BLEU", "chrF", "exact match"] = "BLEU"
    """decides which epoch is kept; sacrebleu's, of normal text"""
    start: bool = Field(True, description="a started model counts as epoch 0")
    sentences: int = Field(0, ge=0, le=COUNT, description="validate on the first N only; 0 for all")
    batch_size: Size = Field(64, description="sentences at a time")


class TranslationRecipe(Section):
    """A whole translation run."""

    task: Literal["translate"] = Field(description="tells this config from a captioner's")
    data: ParallelData
    model: TranslationModelConfig
    start_from: NameOrPath | None = None
    """a translator of the same sizes, by name, folder or hf://user/name: initial weights and the
    vocabulary, for any text.kind, case, size, method and minimum_count"""
    text: TextConfig = Field(default_factory=TextConfig)
    objective: TranslationObjective = Field(default_factory=TranslationObjective)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    search: TranslationSearch = Field(default_factory=TranslationSearch)
    validation: TranslationValidation = Field(default_factory=TranslationValidation)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, model in self.model:
            if model is not None and model.tie_embeddings == "all" and not self.text.joint:
                raise ValueError(f"model.{name}.tie_embeddings 'all' needs text.joint to be true")
        return self


@dataclass(eq=False)
class TranslationTask:
    """Trains a translator; see `captioner.runs.run.Task`. Made by `make_translation_task`."""

    recipe: TranslationRecipe
    batches: TranslationBatches
    order: list[int]
    validation: list[SentencePair]
    references: list[PairExample]
    translator: Translator
    loss: TranslationLoss
    data: list[str]
    digest: str
    kind: str = field(default="translator", init=False)
    pipeline_tag: str = field(default="translation", init=False)
    parameter_groups: None = field(default=None, init=False)

    def generate(self, batches: Sequence[Sequence[int]]) -> Iterator[Generated]:
        """Translations of batches of validation sources, and the cross-entropy of references."""
        device = next(self.loss.parameters()).device
        for numbers in batches:
            sources = [self.validation[number].source for number in numbers]
            translations = self.translator.translate(sources, batch_size=len(sources))
            pairs = collate_pairs([self.references[number] for number in numbers])
            tokens = int(pairs.mask.sum())
            nats = tokens * float(self.loss.loss(pairs.to(device))["cross_entropy"])
            yield Generated([each.text for each in translations], nats, tokens)

    def score(self, translations: list[str]) -> Validated:
        """Score the validation translations."""
        references = [pair.target for pair in self.validation]
        scores = evaluate_translations(translations, references)
        return Validated(scores.scores, translations, record=scores.to_dict())

    def save(self, folder: Path, translations: Sequence[str]) -> None:
        """Save the translator, the translations and their references, one a line."""
        save_translator(self.translator, folder / MODEL)
        references = [pair.target for pair in self.validation]
        for name, texts in ((TRANSLATIONS, translations), (TRANSLATION_REFERENCES, references)):
            write_text(folder / name, "".join(f"{text}\n" for text in texts))


def make_translation_task(
    recipe: TranslationRecipe, folder: Path, resumed: bool
) -> Callable[[Processes], TranslationTask]:
    """Read the text, learn the vocabularies, make the translator. folder: of the run.

    Returns the function that makes the task, in the locked folder.
    """
    sacrebleu_metrics()  # Its package may be missing.
    (training, training_problems), (validation, validation_problems) = read_texts(recipe.data)
    start = None
    if resumed:
        source, target = load_vocabularies(folder, recipe.text.joint)
    else:
        if recipe.start_from is not None:
            start = load_translation_model(ModelFolder(model_folder(recipe.start_from)))
        source, target = first_vocabularies(start, training, recipe.text)
    torch.manual_seed(recipe.training.seed)
    make = partial(make_model, recipe.model, len(source), len(target))
    model = make_trainable(make, "this model")
    if start is not None:
        refusal = f"start_from {recipe.start_from} does not fit this model"
        fill(model, start.model.state_dict(), refusal)
    length = recipe.data.maximum_length
    networks = TorchTranslations(recipe.model, model, source, target)
    capitals = recipe.text.capitals
    translator = Translator(networks, length, recipe.search, capitals=capitals)
    examples, cut = encode_pairs(training, source, target, length)
    sentences = [
        f"training: {len(training):,} pairs of sentences",
        *training_problems.sentences,
        f"validation: {len(validation):,} pairs of sentences",
        *validation_problems.sentences,
        f"vocabulary: {len(source):,} source and {len(target):,} target tokens",
    ]
    for side, vocabulary in (("source", source), ("target", target)):
        pieces = tokens_per_word(vocabulary, [getattr(pair, side) for pair in training[:MEASURED]])
        if pieces > MANY_TOKENS:
            many = f"{side}: {pieces:.1f} tokens a word, where {MANY_TOKENS} are many"
            sentences.append(f"{many}: raise text.size, or learn from more text")
    if cut:
        first = f"tokens a side, the first in line {cut[0]:,}"
        sentences.append(f"training: {counted(len(cut), 'pair')} cut to {length:,} {first}")
    print("\n".join(sentences))
    few = validation[: recipe.validation.sentences or None]
    loss = TranslationLoss(model, recipe.objective)
    references, _ = encode_pairs(few, source, target, length)
    digest = digest_of([(pair.source, pair.target) for pair in (*training, *few)])
    # Similar lengths are together, which needs less padding.
    order = sorted(range(len(few)), key=lambda row: len(few[row].source))

    def make_task(processes: Processes) -> TranslationTask:
        loss.to(processes.device)
        if processes.is_main and not resumed:
            save_vocabularies(folder, source, target)
        # Sentences need no more than two workers.
        workers = min(2, loading_workers(processes.device, processes.local_world_size))
        tokens, seed = recipe.data.batch_tokens, recipe.training.seed
        batches = TranslationBatches(examples, tokens, seed, workers)
        return TranslationTask(
            recipe, batches, order, few, references, translator, loss, sentences, digest
        )

    return make_task


def tokens_per_word(vocabulary: SentenceVocabulary, texts: Sequence[str]) -> float:
    """The mean number of tokens of a word."""
    tokens = [vocabulary.split(text) for text in texts]
    return sum(map(len, tokens)) / max(1, sum(len(vocabulary.words(each)) for each in tokens))


def read_texts(data: ParallelData) -> list[tuple[list[SentencePair], Problems]]:
    """The training and the validation pairs, each with the problems of the skipped ones."""
    if data.format == "numbers":
        numbers, train = data.numbers, data.numbers.train
        pairs = number_pairs(train + numbers.validation, numbers.seed, largest=numbers.largest)
        return [(pairs[:train], Problems()), (pairs[train:], Problems())]
    check_data(data, _TEXTS, "translation.md")
    files = [(data.source, data.target), (data.validation_source, data.validation_target)]
    return [  # ParallelData has checked that they are there.
        read_parallel(cast(Path, source), cast(Path, target), data.on_problem)
        for source, target in files
    ]


def first_vocabularies(
    start: TorchTranslations | None, pairs: Sequence[SentencePair], text: TextConfig
) -> tuple[SentenceVocabulary, SentenceVocabulary]:
    """The vocabularies of source and target, of `start` or learned; one object if joint."""
    if start is not None:
        is_joint = start.source is start.target
        if is_joint != text.joint:
            raise UserError(f"text.joint should be {str(is_joint).lower()}, as in start_from")
        return start.source, start.target

    def learn(texts: list[str]) -> SentenceVocabulary:
        if text.kind == "words":
            return WordVocabulary.learn(texts, text.minimum_count, text.case)
        return SubwordVocabulary.learn(texts, text.size, text.case, text.method)

    sources = [pair.source for pair in pairs]
    targets = [pair.target for pair in pairs]
    if text.joint:
        both = learn(sources + targets)
        return both, both
    return learn(sources), learn(targets)
