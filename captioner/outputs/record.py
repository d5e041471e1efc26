"""The record of a photo: the one list of its fields, read back, checked, and as rows of tables."""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, ValidationError
from pydantic_core.core_schema import any_schema

from captioner.caption.caption import Caption, sentence
from captioner.errors import UserError
from captioner.files import JsonObject
from captioner.library import Written
from captioner.schema import Text, error_sentence, plain_type
from captioner.text.keywords import keywords_of_text
from captioner.text.languages import with_full_stop

PLACES = ("xmp", "text", "embed")
"""Where words about photos are written: options, and keys of `PhotoRecord.files`."""

PERSON = "person"

_Name = Annotated[Text, Field(min_length=1)]
_UNCHECKED = GetPydanticSchema(lambda kind, handler: any_schema())


class CaptionFields(BaseModel):
    """The fields of a caption, as `Caption.to_dict` gives them; other programs' are kept."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    caption: Text = ""
    log_probability: float | None = Field(None, description="natural, the ending included")
    score: float | None = Field(None, description="log-probability after length normalisation")
    confidence: float | None = Field(None, description="share of words that people would use")
    sure: bool | None = None
    word_confidence: list[float | None] | None = Field(
        None, description="probability that people say each word, or the same in other words"
    )
    keywords: list[Text] = Field([], description="nouns that are sure, in the caption's language")
    language: Text | None = Field(None, description="of a translated caption")
    words: list[Text] = []
    word_log_probabilities: list[float] | None = None
    original: "CaptionFields | None" = None
    erased: list[JsonObject] | None = Field(
        None, description="of words: probability, without what the map shows, without other places"
    )


class PhotoRecord(CaptionFields):
    """A photo, its captions, and what was written for it: a line of JSON, a row of a table.

    model, digest, version, search, calibration, translator: what the caption comes from. files:
    paths of drawings, sidecars and texts by option. written: a person's caption as these have it.
    error: why there is no caption, or what could not be written.

    Of this run alone: made: the model's caption with its maps. saved: the fields that a resumed
    table has. own_texts: earlier captions by captioner that a sidecar or text may have. described:
    what became of the words in sidecars, texts and photos.
    """

    image: _Name
    photo_digest: Text = ""
    model: _Name = "default"
    digest: Text | None = None
    version: Text = ""
    search: JsonObject = {}
    calibration: Text | None = None
    translator: Text | None = None
    alternatives: list[CaptionFields] = []
    by: Text | None = None
    bytes: Annotated[int, Field(lt=2**63)] | None = None
    modified: Text | None = None
    files: dict[str, Text] = {}
    written: Text = ""
    error: Text = ""

    made: Annotated[Caption | None, _UNCHECKED] = Field(None, exclude=True)
    saved: JsonObject | None = Field(None, exclude=True)
    own_texts: list[Text] = Field([], exclude=True)
    described: Annotated[Written | None, _UNCHECKED] = Field(None, exclude=True)

    def to_dict(self) -> JsonObject:
        """Its fields for JSON: those that were given, the photo first."""
        fields = self.model_dump(exclude_unset=True, exclude=None if self.error else {"error"})
        return {"image": self.image, **fields}

    @property
    def by_model(self) -> list[str]:
        """The model's caption: its words as a sentence, and with spaces."""
        if "words" not in self.model_fields_set:
            return [self.caption]
        texts = [sentence(self.words), " ".join(self.words)]
        return list(map(with_full_stop, texts)) if self.search.get("sentence") else texts

    @property
    def is_by_person(self) -> bool:
        """Whether a person wrote the caption: it is marked, or differs from its words.

        Those of its alternatives do not count.
        """
        of_model = [text.split() for text in self.by_model]
        return self.by == PERSON or self.caption.split() not in of_model

    @property
    def is_done(self) -> bool:
        """Whether the photo needs no caption; a person's counts in any case."""
        return not self.error or self.is_by_person

    def is_sure(self, least: float) -> bool:
        """Whether the confidence is at least so; failures and captions by people pass."""
        is_failed = "caption" not in self.model_fields_set
        return is_failed or self.is_by_person or (self.confidence or 0) >= least

    @property
    def outcome(self) -> str:
        """What became of the photo in this run."""
        if self.error:
            return "not written" if self.made or self.saved else "unreadable"
        is_kept = self.is_by_person and not (self.made and self.made.given)
        is_kept = is_kept or bool(self.described and self.described.kept)
        return "kept a person's words" if is_kept else "captioned"

    def add_problem(self, problem: str) -> None:
        """Note what could not be written, once."""
        if problem not in self.error.split("; "):
            self.error = "; ".join(filter(None, [self.error, problem]))

    def to_caption(self) -> Caption:
        """Its caption: that of this run with its maps, or one without; a person's is sure.

        A person's has its own words, and as keywords their nouns, or those of a translation's
        keywords that it still has.
        """
        if self.made and (self.made.given or not self.is_by_person):
            return self.made
        text, keywords = " ".join(self.caption.split()), self.keywords
        if self.is_by_person and self.language:
            keywords = [word for word in keywords if word in text]
        elif not self.language and (self.is_by_person or "keywords" not in self.model_fields_set):
            keywords = [*keywords_of_text(text)]
        log_probability = math.nan if self.log_probability is None else self.log_probability
        caption = Caption(text, tuple(self.words), log_probability, (), np.empty((0, 0, 0)))
        caption = replace(caption, name=self.image, language=self.language)
        caption = replace(caption, keywords=tuple(keywords))
        if self.is_by_person:
            return replace(caption, words=tuple(text.split()), confidence=1.0)
        return replace(caption, score=self.score, confidence=self.confidence, sure=self.sure)

    def rows(self) -> Iterator[JsonObject]:
        """Its rows in tables, one a caption, with all `COLUMNS`; None in empty cells."""
        of_caption = set(CaptionFields.model_fields)
        of_photo = {**self.model_dump(exclude=of_caption), **self.files}
        of_photo["words_folder"] = self.files.get("words")
        of_photo["sentence"] = self.search.get("sentence") or None
        for rank, version in enumerate([self, *self.alternatives], start=1):
            row = {**of_photo, "rank": rank, **version.model_dump(include=of_caption)}
            row["erased"] = row["erased"] and json.dumps(row["erased"])
            yield {name: None if row.get(name) in ("", []) else row.get(name) for name in COLUMNS}


_KINDS = {float: "double", bool: "bool", list[Text]: "string[]", list[float | None]: "double[]"}
_OF_CAPTIONS = {
    name: _KINDS.get(plain_type(field.annotation), "string")  # type: ignore[call-overload]
    for name, field in CaptionFields.model_fields.items()
    if name not in ("word_log_probabilities", "original")
}
_TEXTS = ("overlay", "gif", "words_folder", *PLACES, "by", "photo_digest", "model", "modified")
COLUMNS = {"image": "string", "rank": "int32", **_OF_CAPTIONS, **dict.fromkeys(_TEXTS, "string")}
COLUMNS |= {"bytes": "int64", "error": "string", "sentence": "bool"}
"""The columns of tables, with their types in Parquet; in CSV lists are texts."""


_OF_THIS_RUN = {name for name, field in PhotoRecord.model_fields.items() if field.exclude}
"""Fields that no table has."""


def record_of(fields: object, strict: bool = False) -> PhotoRecord:
    """The record of saved fields. Raises `UserError` with the first field of another type.

    strict: False also takes numbers as text, as CSV has them.
    """
    if isinstance(fields, dict):
        fields = {name: fields[name] for name in fields.keys() - _OF_THIS_RUN}
    try:
        return PhotoRecord.model_validate(fields, strict=strict)
    except ValidationError as error:
        raise UserError(error_sentence(error.errors()[0], error.errors()[0]["loc"])) from None


def record_in(line: bytes) -> PhotoRecord | None:
    """The record in a line of JSON, with `saved`; None in another line."""
    with suppress(ValueError, RecursionError, UserError):
        fields = json.loads(line)
        record = record_of(fields, strict=True)
        record.saved = fields
        return record if "model" in fields else None
    return None
