"""Where the captions of photos go: the options of `captioner caption`, from Python too."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from captioner.errors import UserError
from captioner.render.overlay import PAGE_SUFFIXES, PICTURE_SUFFIXES, check_suffix

TABLES = ("parquet", "jsonl", "json", "csv", "html")
PLACES = ("xmp", "text", "embed")
"""Beside photos, and in them."""


@dataclass(frozen=True)
class OutputOptions:
    """Where captions are written, in which form: options of `captioner caption --help`.

    model: whose captions they are, in records. language: None for English. xmp: for which program.
    search: options of `SearchOptions` that were given, over the model's own.
    """

    model: str = "default"
    search: Mapping[str, Any] = field(default_factory=dict)
    language: str | None = None
    translator: str | None = None
    jsonl: str | None = None
    json: str | None = None
    csv: str | None = None
    csv_for: str | None = None
    parquet: str | None = None
    html: str | None = None
    overlay: str | None = None
    gif: str | None = None
    words: str | None = None
    strength: float = 0.8
    xmp: Literal["lightroom", "digikam", "darktable"] | None = None
    text: bool = False
    embed: bool = False
    format: str | None = None
    min_confidence: float = 0.0
    resume: bool = False
    resume_any: bool = False
    overwrite: bool = False
    overwrite_descriptions: bool = False
    dry_run: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        tables = (self.jsonl, self.json, self.csv)
        others = (self.parquet, self.html, self.overlay, self.gif, self.words)
        if tables.count("-") > 1 or "-" in others:
            raise UserError("standard output takes one of --json, --jsonl and --csv, nothing else")
        is_text_alone = self.text and not any((*tables, *others, self.xmp, self.embed))
        if self.resume and self.jsonl in (None, "-") and not is_text_alone:
            raise UserError("--resume needs --jsonl FILE, beside any other output, or --text alone")
        if not 0 <= self.strength <= 1:
            raise UserError(f"--strength {self.strength} is not between 0 and 1")
        if not 0 <= self.min_confidence <= 1:
            raise UserError(f"--min-confidence {self.min_confidence} is not between 0 and 1")
        of_descriptions = (self.min_confidence, self.overwrite_descriptions, self.dry_run)
        if any(of_descriptions) and not self.describes_photos:
            names = "--min-confidence, --overwrite-descriptions and --dry-run"
            raise UserError(f"{names} need --xmp, --text or --embed")
        if self.csv_for and not self.csv:
            raise UserError("--csv-for needs --csv")
        if self.html:
            check_suffix(self.html, PAGE_SUFFIXES)
        for path, suffixes in ((self.overlay, PICTURE_SUFFIXES), (self.gif, (".gif",))):
            if path and names_a_file(path):
                check_suffix(path, suffixes)

    @property
    def describes_photos(self) -> bool:
        """Whether captions go beside photos, or into them."""
        return any(getattr(self, option) for option in PLACES)

    def tables(self) -> Iterator[tuple[str, str]]:
        """The tables and the page, with their options."""
        for option in TABLES:
            path = getattr(self, option)
            if path is not None:
                yield option, path

    def drawings(self, name: str) -> Iterator[tuple[str, Path]]:
        """The drawings of a photo with this output name, with their options."""
        for option, suffix in (("overlay", ".png"), ("gif", ".gif"), ("words", "")):
            if path := getattr(self, option):
                is_file = suffix and names_a_file(path)
                yield option, Path(path) if is_file else Path(path, name + suffix)


def names_a_file(path: str) -> bool:
    """Whether a path is of one drawing, not of a folder for many."""
    return bool(Path(path).suffix) and not path.endswith(("/", os.sep)) and not Path(path).is_dir()
