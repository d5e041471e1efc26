"""Alignments of many lines: a JSON file or a page at the end, or a picture for each line."""

from pathlib import Path

from captioner.files import write_json, write_text
from captioner.render.alignment import Alignment, alignment_page, save_heat_map
from captioner.render.overlay import PICTURE_SUFFIXES, check_suffix
from captioner.translate.translation import Translation

_ONE_FILE = (".json", ".html", ".htm")
"""Suffixes of alignments in one file; the others are of pictures, one a line."""


class AlignmentWriter:
    """Collects the alignments of lines, or draws them.

    path: of the file, or of the picture of the first line.
    pieces: whether rows and columns are subwords, not words.
    """

    def __init__(self, path: Path, pieces: bool) -> None:
        self._path = path
        self._pieces = pieces
        self._suffix = path.suffix.lower()
        self._records: list[dict[str, object]] = []
        self._items: list[tuple[str, Alignment]] = []  # With titles.
        check_suffix(path, (*_ONE_FILE, *PICTURE_SUFFIXES))

    def first_files(self) -> list[Path]:
        """The file, or the first two pictures."""
        is_one = self._suffix in _ONE_FILE
        return [self._path] if is_one else [self._picture(1), self._picture(2)]

    def add(self, number: int, line: str, error: str, translation: Translation) -> str:
        """Collect or draw the alignment of a line; returns what its picture lacks, or "".

        error: why the line could not be read, or "".
        """
        if self._suffix == ".json":
            record = {"source": line, **translation.to_dict()}
            if error:
                unread = ("score", "log_probability", "confidence", "sure")
                record |= {**dict.fromkeys(unread), "error": error}
            self._records.append(record)
            return ""
        alignment = translation.by_token() if self._pieces else translation.by_word()
        if self._suffix in _ONE_FILE:
            doubt = f"  ({translation.doubt})" if translation.doubt else ""
            title = f"({error})" if error else f"{translation.text}{doubt}"
            self._items.append((title, alignment))
            return ""
        picture = self._picture(number)
        if not alignment.target:
            reason = error or "its translation is empty"
            return f"there is no picture {picture} of line {number}: {reason}"
        if missing := " ".join(save_heat_map(picture, alignment)):
            return f"{picture} has boxes in place of letters that its fonts lack: {missing}"
        return ""

    def finish(self) -> None:
        """Write what was collected."""
        if self._suffix == ".json":
            write_json(self._path, self._records)
        elif self._items:
            write_text(self._path, alignment_page(self._items))

    def _picture(self, number: int) -> Path:
        """The picture of a line: "map.png", "map-2.png", ..."""
        return self._path.with_stem(f"{self._path.stem}-{number}") if number > 1 else self._path
