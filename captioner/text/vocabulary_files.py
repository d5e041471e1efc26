"""The vocabularies of a translator as files, of both sides or joint."""

from pathlib import Path

from captioner.errors import UserError
from captioner.files import read_json, write_json
from captioner.model_folders import SOURCE, TARGET, VOCABULARY
from captioner.text import SentenceVocabulary, SubwordVocabulary, WordVocabulary


def save_vocabularies(folder: Path, source: SentenceVocabulary, target: SentenceVocabulary) -> None:
    """Write both vocabularies as JSON, atomically; the same object is written once."""
    vocabularies = {SOURCE: source, TARGET: target}
    if source is target:
        vocabularies = {VOCABULARY: source}
    for name, vocabulary in vocabularies.items():
        write_json(folder / name, vocabulary.to_json(), indent=None)


def load_vocabularies(folder: Path, joint: bool) -> tuple[SentenceVocabulary, SentenceVocabulary]:
    """Read the source's and the target's vocabulary; joint ones are the same object."""
    source = _load(folder / (VOCABULARY if joint else SOURCE))
    return source, source if joint else _load(folder / TARGET)


def _load(path: Path) -> SentenceVocabulary:
    value = read_json(path, "vocabulary")
    where = f"vocabulary {path}"
    for kind in (WordVocabulary, SubwordVocabulary):
        if isinstance(value, dict) and value.get("kind") == kind.kind:
            return kind.from_json(value, where)
    raise UserError(f"{where}: field 'kind' is neither 'words' nor 'subwords'")
