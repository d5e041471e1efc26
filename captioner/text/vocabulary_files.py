"""Saves and loads the vocabularies of both sides of a translation, of words or subwords."""

from __future__ import annotations

from pathlib import Path

from captioner.errors import UserError
from captioner.files import read_json, write_json
from captioner.text.subword_vocabulary import SubwordVocabulary
from captioner.text.text_vocabulary import TextVocabulary
from captioner.text.word_vocabulary import WordVocabulary

VOCABULARIES = JOINT, SOURCE, TARGET = "vocabulary.json", "source.json", "target.json"


def save_vocabularies(folder: Path, source: TextVocabulary, target: TextVocabulary) -> None:
    """Write both vocabularies as JSON, atomically; the same object is written once, as `JOINT`.

    Raises `UserError` when they cannot be written.
    """
    sides = {JOINT: source} if source is target else {SOURCE: source, TARGET: target}
    for name, vocabulary in sides.items():
        write_json(folder / name, vocabulary.to_json(), indent=None)


def load_vocabularies(folder: Path, joint: bool) -> tuple[TextVocabulary, TextVocabulary]:
    """Read the source's and the target's vocabulary; joint ones are the same object.

    Raises `UserError` if a file is absent or ill-formed.
    """
    source, *others = [_load(folder / name) for name in ([JOINT] if joint else [SOURCE, TARGET])]
    return source, others[0] if others else source


def _load(path: Path) -> TextVocabulary:
    value = read_json(path, "vocabulary")
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == WordVocabulary.kind:
        return WordVocabulary.from_json(value, f"vocabulary {path}")
    if kind == SubwordVocabulary.kind:
        return SubwordVocabulary.from_json(value, f"vocabulary {path}")
    raise UserError(f"vocabulary {path}: field 'kind' is neither 'words' nor 'subwords'")
