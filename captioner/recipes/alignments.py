"""The file that the alignments of translations go to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioner.errors import UserError
from captioner.files import check_writable, write_json
from captioner.render.alignment import (
    HEAT_MAP_SUFFIXES,
    AlignmentItem,
    save_alignment_page,
    save_heat_map,
)
from captioner.translate import Translation

PAGE_SUFFIXES = (".html", ".htm")


@dataclass
class AlignmentFile:
    """Alignments as JSON, as a page, or as a picture; the end of the name says which.

    A picture is of one sentence: of several, each has its own, with its number before the suffix
    ("map.png", "map-2.png", ...).
    pieces: show the tokens of subwords as they are; by default they are put together to words. JSON
        has both.

    Raises `UserError`, before anything is written, for another end of the name, and for a place
    that cannot be written to.
    """

    path: Path
    pieces: bool = False
    _records: list[dict[str, Any]] = field(default_factory=list)
    _items: list[AlignmentItem] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = (".json", *PAGE_SUFFIXES, *HEAT_MAP_SUFFIXES)
        if self._suffix not in known:
            raise UserError(f"--alignment {self.path} must end in {', '.join(known)}")
        check_writable(f"--alignment {self.path}", self.path.parent)

    @property
    def _suffix(self) -> str:
        return self.path.suffix.lower()

    def add(self, sentence: str, translation: Translation) -> None:
        """Take in one sentence with its translation; a picture of it is drawn at once.

        Of the empty sentence there is no picture. Raises `UserError` when it cannot be written.
        """
        if self._suffix == ".json":
            self._records.append({"source": sentence, **translation.as_dict()})
            return
        shown = translation.by_token() if self.pieces else translation.by_word()
        item = AlignmentItem(shown.source, shown.target, shown.weights.numpy(), translation.text)
        self._items.append(item)
        if self._suffix in HEAT_MAP_SUFFIXES and translation.tokens:
            number = len(self._items)
            name = f"{self.path.stem}-{number}{self.path.suffix}"
            save_heat_map(self.path if number == 1 else self.path.with_name(name), item)

    def finish(self) -> None:
        """Write the file that holds all. Raises `UserError` when it cannot be written."""
        if self._suffix == ".json":
            write_json(self.path, self._records)
        elif self._suffix in PAGE_SUFFIXES:
            save_alignment_page(self.path, self._items)
