"""Records of captioned photos: their fields, where they come from, and their rows in tables."""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import chain
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import Required, TypedDict

import captioner
from captioner.caption.caption import Caption, sentence
from captioner.caption.config import captioner_config
from captioner.errors import UserError
from captioner.files import JsonObject, read_bytes
from captioner.model_folders import ModelFolder, model_folder
from captioner.outputs.options import PLACES, OutputOptions
from captioner.schema import Text, plain_type, to_mapping
from captioner.tables import csv_text
from captioner.text.keywords import keywords_of_text
from captioner.text.tokenizer import tokenize
from captioner.vision.shards import source_status

Record = JsonObject
"""A photo's `image`, `photo_digest`, `Caption.to_dict`, `files`, `origin_of`, `file_state`, or
`error`."""

_Name = Annotated[Text, Field(min_length=1)]


class _OfCaption(TypedDict, total=False):
    """The fields of a caption that are read again, and are columns."""

    caption: Text
    log_probability: float | None
    score: float | None
    confidence: float | None
    sure: bool | None
    word_confidence: list[float | None] | None
    keywords: list[Text]
    language: Text | None
    words: list[Text]


class _OfPhoto(TypedDict, total=False):
    """Those of a photo."""

    by: Text
    model: Required[_Name]
    bytes: int
    modified: Text
    error: Text


@with_config(ConfigDict(defer_build=True))  # Most commands read none.
class _Saved(_OfCaption, _OfPhoto, total=False):
    """The fields of a record that are read again; others are kept."""

    image: Required[_Name]
    photo_digest: Text
    alternatives: list[_OfCaption]
    original: _OfCaption | None
    files: dict[str, Text]
    search: JsonObject


SAVED = TypeAdapter(_Saved)
_NUMBERS: dict[object, str] = {float: "double", bool: "bool", int: "int64"}
_KINDS = {**_NUMBERS, list[Text]: "string[]", list[float | None]: "double[]"}


def _types(fields: type) -> dict[str, str]:
    kinds = fields.__annotations__.items()
    return {name: _KINDS.get(plain_type(kind), "string") for name, kind in kinds}


_DRAWN = dict.fromkeys(("overlay", "gif", "words_folder", *PLACES), "string")
TYPES = {"image": "string", "rank": "int32"} | _types(_OfCaption) | _DRAWN | _types(_OfPhoto)
"""The columns of tables, as in Parquet; CSV has `words` as a text."""


def file_state(status: os.stat_result | None) -> Record:
    """Size and time of change of a photo's file or shard; empty without one."""
    if status is None:
        return {}
    try:
        changed = datetime.fromtimestamp(status.st_mtime, timezone.utc).isoformat()
    except (ValueError, OverflowError, OSError):  # Its years are 1 to 9999.
        changed = f"@{status.st_mtime}"  # Seconds since 1970, as `date -d` reads them.
    return {"bytes": status.st_size, "modified": changed}


def is_unchanged(source: object, record: Record) -> bool:
    """Whether a photo's file or shard has the size and time of change of a record."""
    state = file_state(source_status(source))
    return bool(state) and state.items() <= record.items()


def origin_of(options: OutputOptions) -> Record:
    """What a run's captions come from, as records have it: digests of weights, search, version."""
    origin: Record = {"model": options.model, "version": captioner.__version__}
    try:
        folder = ModelFolder(model_folder(options.model))
    except UserError:  # From Python, a model may have any name.
        return origin
    origin["digest"] = folder.digest
    origin["search"] = to_mapping(captioner_config(folder).search.override(**options.search))
    if options.calibration:
        content = read_bytes(options.calibration, "calibration")
        origin["calibration"] = hashlib.sha256(content).hexdigest()
    if options.translator:
        origin["translator"] = ModelFolder(model_folder(options.translator)).digest
    return origin


def is_by_person(record: Record) -> bool:
    """Whether a person wrote the caption of a record: it is marked, or differs from its words.

    Those of its alternatives do not count.
    """
    shown, words = record.get("caption", "").split(), record.get("words")
    of_model = (shown,) if words is None else (sentence(words).split(), " ".join(words).split())
    return record.get("by") == "person" or shown not in of_model


def caption_of(record: Record, name: str, status: os.stat_result | None = None) -> Caption:
    """The caption of a record, without maps; that of a person is sure, and has its own words.

    status: of the photo's file.
    """
    scores: Record = {key: record.get(key) for key in ("score", "confidence", "sure")}
    text, language = " ".join(record["caption"].split()), record.get("language")
    words, keywords = record.get("words", ()), record.get("keywords")
    if is_by_person(record):
        words = text.split() if language else tokenize(text)
        scores = {"confidence": 1.0}
        keywords = [word for word in keywords or () if word in text] if language else None
    log_probability = record.get("log_probability", math.nan)
    caption = Caption(text, tuple(words), log_probability, (), np.empty((0, 0, 0)), name=name)
    if keywords is None:  # Also of tables by earlier versions.
        keywords = () if language else keywords_of_text(text)
    return replace(caption, language=language, keywords=tuple(keywords), status=status, **scores)


def rows_of(record: Record) -> Iterator[Record]:
    """One row a caption."""
    written = record.get("files", {})
    of_photo = {**record, **written, "words_folder": written.get("words")}
    of_photo |= dict.fromkeys(_OfCaption.__annotations__)
    for rank, version in enumerate([record, *record.get("alternatives", [])], start=1):
        row = {**of_photo, "rank": rank, **version}
        yield {name: row.get(name) for name in TYPES}


def records_csv(records: Sequence[Record], is_excel: bool) -> str:
    """The rows, with the columns that have a value."""
    rows = list(chain.from_iterable(map(rows_of, records)))
    for row in rows:
        words = row["words"] or ()
        row["words"] = " ".join(words) or None
        row["keywords"] = ", ".join(row["keywords"] or ()) or None
        if scores := row["word_confidence"]:
            pairs = zip(words, scores, strict=False)
            row["word_confidence"] = ", ".join(f"{w} {n:.2f}" for w, n in pairs if n is not None)
    used = {name for row in rows for name, value in row.items() if value is not None}
    columns = [name for name in TYPES if name in used.union([*TYPES][:5])]
    return csv_text(rows, columns, "\t" if is_excel else ",")
