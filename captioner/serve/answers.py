"""JSON that the HTTP interface answers."""

from __future__ import annotations

import math

from pydantic import BaseModel, Field

from captioner.caption import Caption
from captioner.decoding import SearchOptions, TranslationSearch
from captioner.serve.limits import Limits

_PLACES = 5
"""Decimal places of a weight of a map; 14x14 of them still add up to 1 within 0.001."""

_LEVELS = ((0.4, "somewhat sure"), (0.55, "fairly sure"), (math.inf, "quite sure"))
"""Words for confidences below these, where the model is sure."""

_SCORE = "ranks the alternatives: the log-probability after length normalisation"


class CaptionAnswer(BaseModel):
    """A caption of a photo."""

    caption: str
    words: list[str]
    score: float = Field(description=_SCORE)
    log_probability: float = Field(description="natural logarithm, the ending included")
    word_log_probabilities: list[float]
    confidence: float | None = Field(
        None, description="expected share of content words that people would use"
    )
    sure: bool | None = None
    confidence_in_words: str | None = None
    maps: list[list[list[float]]] | None = Field(
        None, description="for each word a map, row by row"
    )
    language: str | None = Field(None, description="of a translated caption")
    original: CaptionAnswer | None = Field(None, description="what was translated")

    @classmethod
    def all_of(cls, caption: Caption, maps: bool) -> list[CaptionAnswer]:
        """A caption and its alternatives, best first. maps: add those of the words."""
        answers = []
        for each in (caption, *caption.alternatives):
            answer = cls(**each.as_dict(), confidence_in_words=confidence_in_words(each))
            if maps:
                answer.maps = [
                    [[round(weight, _PLACES) for weight in row] for row in one]
                    for one in each.attention.tolist()
                ]
            answers.append(answer)
        return answers


class PhotoAnswer(BaseModel):
    """A photo and its captions."""

    name: str
    width: int
    height: int
    region: tuple[float, float, float, float] = Field(
        description="left, top, right, bottom in pixels: what the maps cover"
    )
    captions: list[CaptionAnswer] = Field(description="best first")
    preview: str | None = None


class UnreadablePhoto(BaseModel):
    """A photo that cannot be read."""

    name: str
    error: str


class CaptionsAnswer(BaseModel):
    """Captions of photos, in their order."""

    photos: list[PhotoAnswer | UnreadablePhoto]


class TranslationAnswer(BaseModel):
    """A translation of a sentence."""

    translation: str
    source_tokens: list[str]
    tokens: list[str]
    score: float = Field(description=f"{_SCORE}, and the coverage penalty")
    log_probability: float = Field(description="natural logarithm, the ending included")
    token_log_probabilities: list[float]
    alignment: list[list[float]] = Field(description="a row for each token of `tokens`")
    source_words: list[str]
    words: list[str]
    word_alignment: list[list[float]] = Field(description="a row for each word of `words`")
    truncated: int | None = Field(None, description="tokens at the end that were not read")
    cut: bool | None = Field(None, description="whether it ended only at `maximum_length`")


class SentenceAnswer(BaseModel):
    """A sentence and its translations."""

    source: str
    translations: list[TranslationAnswer] = Field(description="best first")


class TranslationsAnswer(BaseModel):
    """Translations of sentences, in their order."""

    translations: list[SentenceAnswer]


class HealthAnswer(BaseModel):
    """That the server answers."""

    status: str = "ok"
    waiting: int = Field(ge=0, description="photos and sentences not yet answered")


class CaptionerAnswer(BaseModel):
    """The captioning model."""

    map: tuple[int, int]
    confidence: bool
    search: SearchOptions


class TranslatorAnswer(BaseModel):
    """A translation model."""

    attends: bool
    maximum_source_length: int
    search: TranslationSearch


class ModelsAnswer(BaseModel):
    """The models, and what the server accepts."""

    version: str
    captioner: CaptionerAnswer
    languages: list[str] = Field(description="in which captions are offered, beside English")
    translators: dict[str, TranslatorAnswer] = Field(description="by the language they write")
    limits: Limits


def confidence_in_words(caption: Caption) -> str | None:
    """A caption's confidence as a phrase; None where the model has none."""
    confidence = caption.confidence
    if confidence is None:
        return None
    level = caption.doubt or next(words for below, words in _LEVELS if confidence < below)
    tenths = round(10 * confidence)
    share = {0: "hardly any", 10: "nearly all"}.get(tenths, f"about {tenths} in 10")
    return f"{level}: people would use {share} of its words"
