"""What captions come from and where they go: options declared once, for Python and commands."""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from captioner.errors import UserError
from captioner.files import JsonObject
from captioner.outputs.lines import FIELDS, formatted
from captioner.schema import Config, Probability, Text


def _text(value: str, about: str, alias: str | None = None) -> Any:
    """A field for a text, which `value` stands for in the command's help."""
    return Field(None, title=value, description=about, alias=alias)


def _switch(about: str) -> Any:
    return Field(False, description=about)


class CaptionSource(Config):
    """What captions come from: names or folders of models, and options of `SearchOptions`.

    language: a tag; None is English. calibration: file of the model's confidence.
    """

    model: Text = "default"
    calibration: Text | None = None
    translator: Text | None = None
    language: Text | None = None
    search: JsonObject = Field(default_factory=dict)


class OutputOptions(Config):
    """Where captions are written, in which form: options of `captioner caption --help`.

    decoding_seconds: limit for a photo, as `load_image` has it. xmp: for which program.
    output: of sinks of other packages, `NAME=PATH` each.
    """

    model_config = ConfigDict(populate_by_name=True)  # `json` is a method of pydantic's.

    decoding_seconds: float | None = Field(None, gt=0)
    xmp: Literal["lightroom", "digikam", "darktable"] | None = None
    output: list[Text] = Field(default_factory=list)
    format: Text | None = _text("TEXT", "format of a line and of --text: 'sks style, {caption}'")
    quiet: bool = _switch("print nothing but errors")
    json_file: Text | None = _text("FILE", "write captions, words and scores at the end", "json")
    jsonl: Text | None = _text("FILE", "the same, a line a photo, batch by batch")
    jsonl_for: Literal["huggingface"] | None = _text("PROGRAM", "huggingface: for its datasets")
    csv: Text | None = _text("FILE", "write captions as a table at the end")
    parquet: Text | None = _text("FILE", "the same table as Parquet")
    csv_for: Literal["excel"] | None = _text("PROGRAM", "excel: tabs and UTF-16, for any language")
    resume: bool = _switch("keep what --jsonl has of unchanged photos, or --text or --shards alone")
    resume_any: bool = _switch("the same for captions of any model, language and search")
    edited: bool = _switch("photos with people's captions that look different are the same, edited")
    prune: bool = _switch("resume, and drop records and own sidecars of photos that are gone")
    overwrite: bool = _switch("replace tables and drawings that are there already")
    overwrite_descriptions: bool = _switch("replace people's words, of which copies are kept")
    overlay: Text | None = _text("PATH", "draw a panel a word: a picture, or a folder for many")
    words: Text | None = _text("FOLDER", "draw each word's map as a JPEG")
    gif: Text | None = _text("PATH", "animate: a .gif, or a folder for many")
    width: int = Field(0, ge=0, le=2048, description="of GIFs, in pixels (0: longer side 480)")
    html: Text | None = _text("FILE", "write a page on which to point at words")
    title: Text | None = _text("TEXT", "heading of the page of --html")
    plain: bool = _switch("a page without doubt, percentages and buttons, to show")
    keywords: Literal["none", "nouns", "all"] = Field(
        "nouns", title="KIND", description="none, nouns that are sure, or all content words"
    )
    save_maps: Text | None = _text("FILE", "write every word's map as numbers: .npz or .parquet")
    strength: Probability = Field(0.8, description="of the overlays, 0 to 1")
    text: bool = _switch("beside each photo, write the caption as photo.txt")
    shards: Text | None = _text("FOLDER", "copy tars, with txt and json beside each photo")
    embed: bool = _switch("write caption and keywords into the photos, by exiftool")
    describe: Literal["caption", "none"] = Field(
        "caption", title="WHAT", description="none: --xmp and --embed write keywords alone"
    )
    min_confidence: Probability = Field(0.0, description="leave less sure captions out")
    dry_run: bool = _switch("say what --xmp, --text and --embed would write, and do not")

    @model_validator(mode="after")
    def _check(self) -> Self:
        tables = [self.jsonl, self.json_file, self.csv]
        others = [self.parquet, self.html, self.overlay, self.gif, self.words, self.save_maps]
        if tables.count("-") > 1 or "-" in others:
            raise UserError("standard output takes one of --json, --jsonl and --csv, nothing else")
        written = (*tables, *others, *self.output, self.xmp, self.embed, self.prune)
        is_alone = not any(written) and self.text != bool(self.shards)
        if self.resumes and self.jsonl in (None, "-") and not is_alone:
            needed = "--jsonl FILE, beside any other output, or --text or --shards alone"
            raise UserError(f"--resume needs {needed}")
        if self.resumes and self.jsonl_for:
            raise UserError("--jsonl-for huggingface gives no table to resume from")
        if self.describe == "none" and (self.text or not self.describes_photos):
            raise UserError("--describe none needs --xmp or --embed, and no --text")
        beside = "--xmp, --text or --embed"
        given: dict[str, object] = {"--csv": self.csv, "--jsonl": self.jsonl, "--html": self.html}
        given |= {"--gif": self.gif, beside: self.describes_photos}
        needs = {"csv_for": "--csv", "jsonl_for": "--jsonl", "title": "--html", "plain": "--html"}
        needs |= {"width": "--gif", "overwrite_descriptions": beside, "dry_run": beside}
        for name, needed in needs.items():
            if getattr(self, name) and not given[needed]:
                raise UserError(f"--{name.replace('_', '-')} needs {needed}")
        if 0 < self.width < 64:
            raise UserError(f"--width should be 64 or more, found {self.width}")
        if self.format:
            formatted(self.format, dict.fromkeys(FIELDS))  # Refuses what is no format.
        return self

    @property
    def resumes(self) -> bool:
        """Whether captions of an earlier run are kept."""
        return self.resume or self.resume_any or self.prune

    @property
    def describes_photos(self) -> bool:
        """Whether captions go beside photos, or into them."""
        return bool(self.xmp or self.text or self.embed)

    @property
    def tables(self) -> dict[str, str]:
        """The tables and the page, by option."""
        paths = {"parquet": self.parquet, "jsonl": self.jsonl, "json": self.json_file}
        paths |= {"csv": self.csv, "html": self.html, "save-maps": self.save_maps}
        return {option: path for option, path in paths.items() if path is not None}


def names_a_file(path: str) -> bool:
    """Whether a path is of one drawing, not of a folder for many."""
    return bool(Path(path).suffix) and not path.endswith(("/", os.sep)) and not Path(path).is_dir()
