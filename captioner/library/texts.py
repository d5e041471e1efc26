"""The text beside a photo: whose it is, and the copies of those that captions replaced."""

import os
from collections.abc import Collection
from itertools import chain, count
from pathlib import Path

from captioner import files
from captioner.library.words import Words


def content_of(path: Path) -> str:
    """The text in a file, "" without one."""
    return files.read_bytes(path).decode(errors="replace").strip() if os.path.lexists(path) else ""


def is_own(text: str, words: Words, captions: Collection[str]) -> bool:
    """Whether captioner wrote a text: one of the captions, or one in a line like that of `words`.

    Such a line has another trigger word: one word beside the caption differs.
    """
    new_frame = _frame(words.line, words.caption)
    frames = [_frame(text, caption) for caption in captions if caption and caption in text]
    differences = (
        sum(map(str.__ne__, frame, new_frame)) for frame in frames if len(frame) == len(new_frame)
    )
    return text in captions or 1 in differences


def _frame(line: str, caption: str) -> list[str]:
    """The words of a line beside its caption, for which "" stands."""
    before, _, after = line.partition(caption)
    return [*before.split(), "", *after.split()]


def copies(text: Path) -> tuple[Path | None, Path]:
    """The last copy of a text, and where the next goes: `photo.txt.before`, `photo.txt.before2`.

    A copy that equals the text is the next: a run was killed before it wrote the text.
    """
    last = None
    for end in chain([""], count(2)):
        copy = text.with_name(f"{text.name}.before{end}")
        if not os.path.lexists(copy) or files.read_bytes(copy) == files.read_bytes(text):
            break
        last = copy
    return last, copy
