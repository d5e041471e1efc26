"""Saves and loads a vocabulary of words or of subwords."""

from __future__ import annotations

import os

from captioner.errors import UserError
from captioner.files import read_json, write_json
from captioner.text.subword_vocabulary import SubwordVocabulary
from captioner.text.text_vocabulary import TextVocabulary
from captioner.text.word_vocabulary import WordVocabulary


def save_text_vocabulary(vocabulary: TextVocabulary, path: str | os.PathLike[str]) -> None:
    """Write a vocabulary as JSON, atomically. Raises `UserError` when it cannot be written."""
    write_json(path, vocabulary.to_json(), indent=None)


def load_text_vocabulary(path: str | os.PathLike[str]) -> TextVocabulary:
    """Read a vocabulary that `save_text_vocabulary` wrote, of either kind.

    Raises `UserError` if the file is absent or ill-formed, or if subwords need a package that is
    not installed.
    """
    value = read_json(path, "vocabulary")
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == WordVocabulary.kind:
        return WordVocabulary.from_json(value, f"vocabulary {path}")
    if kind == SubwordVocabulary.kind:
        return SubwordVocabulary.from_json(value, f"vocabulary {path}")
    raise UserError(f"vocabulary {path}: field 'kind' is neither 'words' nor 'subwords'")
