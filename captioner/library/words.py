"""What passes the gate of the library: plain values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

OPTION = "--overwrite-descriptions"

Program = Literal["lightroom", "digikam", "darktable"]
Writer = Literal["person", "table", "captioner"]


@dataclass(frozen=True)
class Words:
    """A caption and what is written with it.

    caption: "" to write keywords alone. language: a tag. by_person: a person wrote the caption: it
    is marked so, and no machine's replaces it. text: the line for `photo.txt`; None is the caption.
    """

    caption: str
    keywords: Sequence[str] = ()
    language: str = "en"
    confidence: float | None = None
    by_person: bool = False
    text: str | None = None
    photo_digest: str = ""
    own_texts: Sequence[str] = ()

    @property
    def line(self) -> str:
        """The line of a text."""
        return (self.text or self.caption).strip()


@dataclass(frozen=True)
class Places:
    """Where words are written. sidecar: the program that reads it, which decides its name."""

    sidecar: Program | None = None
    text: bool = False
    embed: bool = False


@dataclass(frozen=True)
class Description:
    """A text that describes a photo.

    by: `person`, in another program; `table`, a person's that captioner wrote from a table; or
        `captioner`, a model's.
    """

    text: str
    place: Literal["sidecar", "photo"]
    by: Writer


@dataclass
class Written:
    """What became of a photo's words, by `Library.write` or `Library.undo`.

    files: paths by option (`xmp`, `text`, `embed`), as `Library.files`, of what was written or is
        so already, and of a text of a person that stays; empty in a dry run.
    words: what was written or taken out, by option, of the files that get other contents.
    kept: a person's words that stay, "" if none; of an undo, a text that may be a person's.
    replaced: words of a person that were replaced; a copy of each is kept.
    problems: why something was not written; a run with one ends with exit code 2.
    notes: other sentences for people; in a dry run also what would change.
    would: the verb of a dry run, "" in others.
    """

    files: dict[str, str] = field(default_factory=dict)
    words: dict[str, Sequence[str]] = field(default_factory=dict)
    kept: str = ""
    replaced: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    would: str = ""

    def count(self, option: str, place: Path, words: Iterable[str]) -> None:
        """Count a change, which a dry run names."""
        self.words[option] = [*dict.fromkeys(words)]
        if self.would:
            listed = ", ".join(map(repr, self.words[option])) or "nothing"
            self.notes.append(f"{place} would {self.would} {listed}")

    def replace(self, place: Path, words: Iterable[str], copy: str) -> None:
        """Name the words of people that were replaced."""
        gone = [*dict.fromkeys(words)]
        if gone:
            listed = ", ".join(map(repr, gone))
            self.notes.append(f"{place}: {OPTION} replaces {listed}; a copy: {copy}")
            self.replaced += gone
