"""Where the captions of photos go: the options of `captioner caption`, from Python too."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from captioner.errors import UserError

TABLES = ("parquet", "jsonl", "json", "csv", "html")
PLACES = ("xmp", "text", "embed")
"""Beside photos, and in them."""


def _option(value: str, about: str, default: Any = None, **more: Any) -> Any:
    """A field with its option; see `shared_options.add_option`."""
    if isinstance(default, float):
        more["default"] = default  # For the help.
    return field(
        default=default if value else False, metadata={"value": value, "about": about, **more}
    )


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
    xmp: Literal["lightroom", "digikam", "darktable"] | None = None
    format: str | None = _option("TEXT", "format of a line and of --text: 'sks style, {caption}'")
    quiet: bool = _option("", "print nothing but errors")
    json: str | None = _option("FILE", "write captions, words and log-probabilities at the end")
    jsonl: str | None = _option("FILE", "the same, a line a photo, batch by batch")
    csv: str | None = _option("FILE", "write captions as a table at the end")
    parquet: str | None = _option("FILE", "the same table as Parquet")
    csv_for: str | None = _option(
        "PROGRAM", "excel: tabs and UTF-16, for any language", choices=("excel",)
    )
    resume: bool = _option("", "keep what --jsonl has of unchanged photos, or --text alone")
    resume_any: bool = _option("", "the same for captions of any model, language and search")
    overwrite: bool = _option("", "replace tables and drawings that are there already")
    overwrite_descriptions: bool = _option("", "replace people's words, of which copies are kept")
    overlay: str | None = _option("PATH", "draw a panel a word: a picture, or a folder for many")
    words: str | None = _option("FOLDER", "draw each word's map as a JPEG")
    gif: str | None = _option("PATH", "animate: a .gif, or a folder for many")
    html: str | None = _option("FILE", "write a page on which to point at words")
    strength: float = _option("X", "of the overlays, 0 to 1", default=0.8)
    text: bool = _option("", "beside each photo, write the caption as photo.txt")
    embed: bool = _option("", "write caption and nouns into the photos, by exiftool")
    min_confidence: float = _option("X", "describe no photo by a less sure caption", default=0.0)
    dry_run: bool = _option("", "say what --xmp, --text and --embed would write, and do not")

    def __post_init__(self) -> None:
        tables = (self.jsonl, self.json, self.csv)
        others = (self.parquet, self.html, self.overlay, self.gif, self.words)
        if tables.count("-") > 1 or "-" in others:
            raise UserError("standard output takes one of --json, --jsonl and --csv, nothing else")
        is_text_alone = self.text and not any((*tables, *others, self.xmp, self.embed))
        if self.resume and self.jsonl in (None, "-") and not is_text_alone:
            raise UserError("--resume needs --jsonl FILE, beside any other output, or --text alone")
        shares = {"--strength": self.strength, "--min-confidence": self.min_confidence}
        for option, share in shares.items():
            if not 0 <= share <= 1:
                raise UserError(f"{option} {share} is not between 0 and 1")
        of_descriptions = (self.min_confidence, self.overwrite_descriptions, self.dry_run)
        if any(of_descriptions) and not self.describes_photos:
            names = "--min-confidence, --overwrite-descriptions and --dry-run"
            raise UserError(f"{names} need --xmp, --text or --embed")
        if self.csv_for and not self.csv:
            raise UserError("--csv-for needs --csv")
        from captioner.render.overlay import PAGE_SUFFIXES, PICTURE_SUFFIXES, check_suffix

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
