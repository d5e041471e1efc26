"""The fields of a translator's training config."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.data.parallel import LARGEST
from captioner.decoding.options import TranslationSearch
from captioner.schema import COUNT, Config, Count, FilePath, Length, Seed, Size
from captioner.text.plain_text import Capitals
from captioner.training.config import TrainingConfig
from captioner.translate.model import TranslationObjective
from captioner.translate.translator import TranslationModelConfig

TASK = "translate"


class NumbersData(Config):
    """The generated set: different numbers, in words and in figures."""

    train: int = Field(3000, ge=1, le=LARGEST + 1, description="numbers to train on")
    validation: int = Field(500, ge=1, le=LARGEST + 1, description="numbers to validate on")
    largest: int = Field(9_999, ge=0, le=LARGEST, description="the largest; the smallest is 0")
    seed: Seed = Field(0, description="of the draw")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.train + self.validation > self.largest + 1:
            raise ValueError(
                f"train {self.train} and validation {self.validation} are more than there are "
                f"numbers from 0 to {self.largest}"
            )
        return self


class ParallelData(Config):
    """Training and validation data. Paths start from the working folder."""

    format: Literal["parallel", "numbers"] = Field(
        "parallel",
        description="parallel: two text files line by line, of which .gz is unpacked; numbers: "
        "generated, no files",
    )
    source: FilePath | None = Field(None, description="training text to translate")
    target: FilePath | None = Field(None, description="its translation")
    validation_source: FilePath | None = Field(None, description="validation text to translate")
    validation_target: FilePath | None = Field(None, description="its translation")
    on_problem: Literal["refuse", "skip"] = Field(
        "refuse", description="refuse to start when a sentence is empty, or skip and report it"
    )
    maximum_length: Length = Field(
        100, description="tokens; longer sentences are cut, also in translating"
    )
    batch_tokens: int = Field(
        3000,
        ge=1,
        le=10_000_000,
        description="tokens a step with padding, on the longer side, over all processes",
    )
    numbers: NumbersData = Field(default_factory=NumbersData)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("source", "target", "validation_source", "validation_target"):
            if self.format == "parallel" and getattr(self, name) is None:
                raise ValueError(f"{name} is missing; format 'parallel' needs it")
        return self


class TextConfig(Config):
    """How text is cut into tokens, learned from the training text or as in `start_from`."""

    kind: Literal["words", "subwords"] = Field("words", description="what a token is")
    joint: bool = Field(False, description="one vocabulary for both sides")
    case: Literal["keep", "lower", "sentence"] = Field(
        "keep",
        description="lower: small letters for all; sentence (words only): the first word of a "
        "sentence as it is written elsewhere",
    )
    capitals: Capitals = Field(
        "keep", description="read as sentences: none, lines all in capitals, or titles as well"
    )
    minimum_count: Count = Field(2, description="occurrences of a word that enters the vocabulary")
    size: int = Field(
        8000, ge=1, le=1_000_000, description="subwords, of both sides together where joint"
    )
    method: Literal["unigram", "bpe"] = Field("unigram", description="of learning subwords")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "subwords" and self.case == "sentence":
            raise ValueError("case 'sentence' is of words; of subwords it is one of keep, lower")
        return self


class TranslationValidation(Config):
    """Validation on generated translations, with the search of `search`."""

    score: Literal["BLEU", "chrF", "exact match"] = Field(
        "BLEU", description="decides which epoch is kept; sacrebleu's, of normal text"
    )
    sentences: int = Field(0, ge=0, le=COUNT, description="validate on the first N only; 0 for all")
    batch_size: Size = Field(64, description="sentences at a time")


class TranslationRecipe(Config):
    """A whole translation run."""

    task: Literal["translate"] = Field(
        description="tells this config from that of a captioner, which has no task"
    )
    data: ParallelData
    model: TranslationModelConfig
    start_from: str | None = Field(
        None,
        min_length=1,
        description="a translator of the same sizes, by name, folder or hf://user/name: initial "
        "weights and the vocabulary, for any text.kind, case, size, method and minimum_count",
    )
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
        if self.training.batch_size != TrainingConfig().batch_size:
            raise ValueError("training.batch_size has no effect: data.batch_tokens is for that")
        if self.model.sequence_to_sequence is not None:
            for name in ("copy_unknown", "coverage_penalty"):
                if getattr(self.search, name):
                    raise ValueError(
                        f"search.{name} has no effect: it needs a model with attention"
                    )
        return self
