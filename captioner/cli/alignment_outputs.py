"""Writes the alignments of translations."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioner.cli.shared_options import check_files
from captioner.errors import UserError
from captioner.files import refuse_os_errors, write_json, write_text
from captioner.render.alignment import AlignmentItem, alignment_page, save_heat_map
from captioner.render.save import PAGE_SUFFIXES, PLOT_SUFFIXES
from captioner.translate import Translation


@dataclass
class AlignmentFile:
    """Alignments as JSON, page or pictures, by the suffix of the path.

    Each sentence has its own picture, numbered from the second: "map.png", "map-2.png", ...
    pieces: show subwords instead of words; JSON has both.
    """

    path: Path
    pieces: bool = False
    _records: list[dict[str, Any]] = field(default_factory=list)
    _items: list[AlignmentItem] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = (".json", *PAGE_SUFFIXES, *PLOT_SUFFIXES)
        if self._suffix not in known:
            raise UserError(f"--alignment {self.path} must end in {', '.join(known)}")

    def check(self, overwrite: bool) -> None:
        """Refuse to replace the file, or pictures with its name and a number."""
        paths = [self.path]
        if self._suffix in PLOT_SUFFIXES:
            numbered = re.compile(re.escape(self.path.stem) + r"-\d+" + re.escape(self.path.suffix))
            others = self.path.parent.glob(f"*{self.path.suffix}")
            paths += [other for other in others if numbered.fullmatch(other.name)]
        check_files([("--alignment", str(path)) for path in paths], overwrite)

    @property
    def _suffix(self) -> str:
        return self.path.suffix.lower()

    def add(self, sentence: str, translation: Translation, error: str = "") -> str:
        """Add a sentence with its translation; draws its picture.

        error: why the line could not be read; both are empty then. JSON has it as `error` and no
            scores, a page as the heading; there is no picture.

        Returns a sentence about a missing picture or letters missing in it, else an empty one.
        """
        if self._suffix == ".json":
            unread = {"score": None, "log_probability": None, "error": error} if error else {}
            self._records.append({"source": sentence, **translation.as_dict(), **unread})
            return ""
        shown = translation.by_token() if self.pieces else translation.by_word()
        heading = f"({error})" if error else translation.text
        item = AlignmentItem(shown.source, shown.target, shown.weights.numpy(), heading)
        self._items.append(item)
        if self._suffix in PAGE_SUFFIXES:
            return ""
        if not translation.tokens:
            return self._without_picture(error or "its translation is empty")
        if missing := save_heat_map(self._picture, item):
            letters = " ".join(missing)
            return f"{self._picture} has boxes in place of letters that its fonts lack: {letters}"
        return ""

    @property
    def _picture(self) -> Path:
        """The picture of the last sentence."""
        number = len(self._items)
        name = f"{self.path.stem}-{number}{self.path.suffix}"
        return self.path if number == 1 else self.path.with_name(name)

    def _without_picture(self, reason: str) -> str:
        with refuse_os_errors(f"cannot remove {self._picture}"):
            self._picture.unlink(missing_ok=True)  # An earlier run's would be mistaken for it.
        return f"there is no picture {self._picture} of line {len(self._items)}: {reason}"

    def finish(self) -> None:
        """Write the JSON or page."""
        if self._suffix == ".json":
            write_json(self.path, self._records)
        elif self._suffix in PAGE_SUFFIXES:
            write_text(self.path, alignment_page(self._items))
