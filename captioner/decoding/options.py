"""The options of a search, for every model."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from captioner.errors import UserError
from captioner.schema import LENGTH, Config, Length, Seed
from captioner.text.languages import word_forms
from captioner.text.tokenizer import tokenize

TokenCount = Annotated[int, Field(ge=0, le=LENGTH)]  # A result's length.
Width = Annotated[int, Field(ge=1, le=1_000)]  # A beam's.

SAMPLING = ("temperature", "top_k", "top_p", "seed")  # The options that need `sample`.


class AnySearch(Config):
    """How captions and translations are searched for."""

    beam: Width = Field(5, description="beam size; 1 is greedy search")
    n_best: Width = Field(1, description="results a photo or sentence; more than the beam widen it")
    length_normalisation: float = Field(
        0.0, ge=0, le=10, description="divide scores by ((5 + length) / 6) to this power"
    )
    minimum_length: TokenCount = Field(1, description="fewest tokens of a result")
    maximum_length: Length = Field(40, description="most tokens of a result, cut off there")
    block_ngrams: TokenCount = Field(0, description="no sequence of so many tokens twice; 0: off")
    repeat_distance: TokenCount = Field(
        0, description="no content word, plural or synonym again within so many; 0: off"
    )
    sample: bool = Field(False, description="draw results instead of searching; needs torch")
    temperature: float = Field(1.0, gt=0, le=1_000, description="of sampling; below 1 is safer")
    top_k: int = Field(0, ge=0, le=1_000_000, description="sample from the K likeliest; 0 for all")
    top_p: float = Field(1.0, gt=0, le=1, description="sample the likeliest that hold this share")
    seed: Seed = Field(0, description="seed of sampling")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.sample and self.n_best > self.beam:
            raise ValueError(f"n_best {self.n_best} is more than the beam size, {self.beam}")
        if self.minimum_length > self.maximum_length:
            limits = f"{self.minimum_length} is more than maximum_length, {self.maximum_length}"
            raise ValueError(f"minimum_length {limits}")
        return self

    def override(self, **values: object) -> Self:
        """A copy with other values; None changes nothing, a larger `n_best` widens the beam."""
        values = {name: value for name, value in values.items() if value is not None}
        n_best = values.get("n_best")
        if isinstance(n_best, int) and n_best > self.beam:
            values.setdefault("beam", n_best)
        changed = self.replace(**values)
        for name in SAMPLING:
            if name in values and not changed.sample:
                raise UserError(f"{name!r} has no meaning without 'sample'")
        return changed


def _as_text(given: object) -> object:
    """Words with commas."""
    return ",".join(map(str, given)) if isinstance(given, list | tuple | set | frozenset) else given


def _sorted_phrases(text: str) -> str:
    """The phrases of a text with commas, in tokens; of "man's" the man alone."""
    phrases = {f" {' '.join(tokenize(phrase))}".removesuffix(" 's") for phrase in text.split(",")}
    return ",".join(sorted(phrase.strip() for phrase in phrases if phrase.strip()))


class SearchOptions(AnySearch):
    """How captions are searched for."""

    without: Annotated[str, BeforeValidator(_as_text), AfterValidator(_sorted_phrases)] = Field(
        "", max_length=1_000, title="WORDS", description="never said, nor plurals: man,hot dog"
    )
    begin: str = Field("", title="TEXT", description="how English captions begin: 'a photo of'")
    truth_weight: float = Field(
        0.0, ge=0, le=100, description="weight of word confidences in ranking the beam's captions"
    )
    cautious: bool = Field(False, description="prefer shorter captions that are more likely true")
    people: Literal["said", "neutral"] = Field(
        "said", title="WORDS", description="neutral: 'person' for a man or woman, 'their' for his"
    )
    sentence: bool = Field(False, description="a capital and a full stop")
    maximum_characters: int = Field(
        0, ge=0, le=10_000, description="the best caption of the beam that fits; 0: any"
    )
    map_kind: Literal["attention", "gradient"] = Field(
        "attention", title="KIND", description="attention, or times its gradient; of transformers"
    )
    detailed: bool = Field(False, description="a caption of several sentences; of Florence-2")

    @property
    def forbidden_phrases(self) -> frozenset[str]:
        """The phrases of `without`, in tokens, and those whose last word is a plural."""
        phrases = (phrase.split() for phrase in self.without.split(",") if phrase)
        return frozenset(
            " ".join([*first, form]) for *first, last in phrases for form in word_forms(last)
        )

    def refuse_translation(self) -> None:
        """Raise `UserError` for `without`: a translation may say what its caption does not."""
        if self.without:
            raise UserError("'without' is for captions in English: leave it or the language out")

    def forbidden_in(self, words: Iterable[str]) -> set[str]:
        """Those of `forbidden_phrases` that a caption of these words has."""
        text = f" {' '.join(words)} "
        return {phrase for phrase in self.forbidden_phrases if f" {phrase} " in text}


class TranslationSearch(AnySearch):
    """How translations are searched for."""

    maximum_length: Length = Field(100, description="most tokens of a result, cut off there")
    coverage_penalty: float = Field(0.0, ge=0, le=10, description="ranks omissions lower (GNMT)")
    copy_unknown: bool = Field(
        False,
        description="copy the most attended source word for unknown ones; needs attention "
        "and a vocabulary of words",
    )
