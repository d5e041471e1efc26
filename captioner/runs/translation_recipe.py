"""Every field of a config with `task: translate`, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from captioner.data.numbers import LARGEST
from captioner.errors import UserError
from captioner.field_checks import check_choice, check_sizes
from captioner.schema import Config
from captioner.text.capitals import CAPITALS
from captioner.text.plain_text import CASES
from captioner.text.subword_vocabulary import METHODS
from captioner.text.word_vocabulary import WORD_CASES
from captioner.training import TrainingConfig
from captioner.translate import TranslationModelConfig, TranslationObjective, TranslationSearch

TASK = "translate"
SCORES = ("BLEU", "chrF", "exact match")


@dataclass(frozen=True)
class NumbersData:
    """The generated set: so many different numbers from 0 to `largest`, from `seed`.

    Raises `UserError` for values out of range.
    """

    train: int = 3000
    validation: int = 500
    largest: int = 9_999
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("train", 1), ("validation", 1), ("largest", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"numbers {name} {getattr(self, name)} is not at least {least}")
        if self.largest > LARGEST:
            raise UserError(f"numbers largest {self.largest} is not at most {LARGEST}")
        if self.train + self.validation > self.largest + 1:
            raise UserError(
                f"numbers train {self.train} and validation {self.validation} are more than there "
                f"are numbers from 0 to {self.largest}"
            )


@dataclass(frozen=True)
class ParallelData:
    """What is learned from, and what is validated on. Paths start from the working folder.

    format: `parallel`, two text files line by line, or `numbers` (generated, no files).
    source, target: the training text; files that end in .gz are unpacked.
    validation_source, validation_target: what is validated on.
    on_problem: `refuse` to start when a sentence is empty, or `skip` such pairs and say so.
    maximum_length: tokens; longer sentences are cut, on either side, and counted. It is also the
        longest source that the translator reads.
    batch_tokens: tokens a step, padding included, on the longer side of its pairs, over all
        processes.
    numbers: the generated set, for the format `numbers`.

    Raises `UserError` for an unknown format, values out of range and files that are not named.
    """

    format: str = "parallel"
    source: Path | None = None
    target: Path | None = None
    validation_source: Path | None = None
    validation_target: Path | None = None
    on_problem: str = "refuse"
    maximum_length: int = 100
    batch_tokens: int = 3000
    numbers: NumbersData = field(default_factory=NumbersData)

    def __post_init__(self) -> None:
        if self.format not in ("parallel", "numbers"):
            raise UserError(f"format {self.format!r} is not one of parallel, numbers")
        if self.on_problem not in ("refuse", "skip"):
            raise UserError(f"on_problem {self.on_problem!r} is not one of refuse, skip")
        for name in ("maximum_length", "batch_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} is not at least 1")
        for name in ("source", "target", "validation_source", "validation_target"):
            if self.format == "parallel" and getattr(self, name) is None:
                raise UserError(f"field {name!r} is missing; format 'parallel' needs it")


@dataclass(frozen=True)
class TextConfig:
    """How text is cut into tokens, learned from the training text.

    kind: `words`, or `subwords`.
    joint: one vocabulary for both sides.
    case: `keep`; `lower`, small letters for all; or, of words, `sentence`: see
        `captioner.text.word_vocabulary.WordVocabulary`.
    capitals: which lines in capitals are read as sentences by the translator, `keep` for none,
        `lines`, or `titles`: see `captioner.text.capitals.as_sentence`. Training text is learned
        from as it is.
    minimum_count: of words: how often one must occur. size, method: of subwords: how many, of both
        sides together where joint, and `unigram` or `bpe`.

    Raises `UserError` for values out of range.
    """

    kind: str = "words"
    joint: bool = False
    case: str = "keep"
    capitals: str = "keep"
    minimum_count: int = 2
    size: int = 8000
    method: str = "unigram"

    def __post_init__(self) -> None:
        cases = WORD_CASES if self.kind == "words" else CASES
        section = "text"
        check_choice(section, self, "kind", ("words", "subwords"))
        check_choice(section, self, "case", cases)
        check_choice(section, self, "capitals", CAPITALS)
        check_choice(section, self, "method", METHODS)
        check_sizes(section, self, "minimum_count", "size")


@dataclass(frozen=True)
class TranslationValidation:
    """Free-running validation: translations are searched for as a user would get them.

    score: what decides which epoch is kept; one of `SCORES`. They are sacrebleu's, of normal text.
    sentences: validate on the first so many only; 0 for all. batch_size: sentences at a time.

    Raises `UserError` for values out of range.
    """

    score: str = "BLEU"
    sentences: int = 0
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise UserError(f"score {self.score!r} is not one of {', '.join(SCORES)}")
        if self.sentences < 0:
            raise UserError(f"validation sentences {self.sentences} is negative")
        if self.batch_size < 1:
            raise UserError(f"validation batch_size {self.batch_size} is not at least 1")


@dataclass(frozen=True)
class TranslationRecipe:
    """A whole translation run. The sections are documented at their classes.

    task: `translate`, which tells this config from that of a captioner.
    model: one section, named for the model: `sequence_to_sequence`, `bahdanau`, `luong`, `gnmt` or
        `transformer`.
    training: of it `batch_size` and `encoder_learning_rate` have no meaning here.

    Raises `UserError` for values out of range, and for a field that has no effect and is set to
    another value than its default.
    """

    task: str
    data: ParallelData
    model: TranslationModelConfig
    text: TextConfig = field(default_factory=TextConfig)
    objective: TranslationObjective = field(default_factory=TranslationObjective)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: TranslationSearch = field(default_factory=TranslationSearch)
    validation: TranslationValidation = field(default_factory=TranslationValidation)

    def __post_init__(self) -> None:
        if self.task != TASK:
            raise UserError(f"task {self.task!r} is not {TASK!r}")
        if self.training.batch_size != TrainingConfig.batch_size:
            raise UserError("training batch_size has no effect: data batch_tokens is for that")
        if self.training.encoder_learning_rate is not None:
            raise UserError("training encoder_learning_rate has no effect on a translation model")
        for model in fields(self.model):
            section = getattr(self.model, model.name)
            if section is not None and section.tie_embeddings == "all" and not self.text.joint:
                raise UserError(f"{model.name} tie_embeddings 'all' needs text joint to be true")
        for name, section, names, reason in self._without_effect():
            for each in names:
                if getattr(section, each) != _default(section, each):
                    raise UserError(f"{name} {each} has no effect: {reason}")

    def _without_effect(self) -> Iterator[tuple[str, Any, tuple[str, ...], str]]:
        """Sections by their names, those of their fields that have no effect, and why."""
        names: tuple[str, ...] = ("numbers",)
        if self.data.format == "numbers":
            names = ("source", "target", "validation_source", "validation_target", "on_problem")
        yield "data", self.data, names, f"data format is {self.data.format}"
        names = ("size", "method") if self.text.kind == "words" else ("minimum_count",)
        yield "text", self.text, names, f"text kind is {self.text.kind}"
        if self.text.kind == "subwords":
            yield "search", self.search, ("copy_unknown",), "no word is unknown to text of subwords"
        if self.model.sequence_to_sequence is not None:
            names = ("copy_unknown", "coverage_penalty")
            yield "search", self.search, names, "it needs a model with attention"
        luong = self.model.luong
        if luong is not None and luong.score != "concat":
            yield "luong", luong, ("attention_size",), f"luong score is {luong.score}"
        if luong is not None and luong.attention == "global":
            yield "luong", luong, ("window",), "luong attention is global"
        gnmt = self.model.gnmt
        if gnmt is not None and gnmt.residual_from > gnmt.layers:
            yield "gnmt", gnmt, ("residual_from",), f"gnmt layers is {gnmt.layers}"


def _default(section: Any, name: str) -> Any:
    """What a field of a dataclass is where it is not given."""
    if isinstance(section, Config):
        return type(section).model_fields[name].get_default(call_default_factory=True)
    (found,) = (field for field in fields(section) if field.name == name)
    return found.default if found.default_factory is MISSING else found.default_factory()
