"""The text beside a photo: whose it is, and the copies of those that captions replaced."""

import os
from collections.abc import Collection
from itertools import chain, count
from pathlib import Path

from captioner import files


def content_of(path: Path) -> str:
    """The text in a file, "" without one."""
    if not os.path.lexists(path):
        return ""
    return files.read_bytes(path).decode(errors="replace").strip()


def is_own(text: str, line: str, captions: Collection[str]) -> bool:
    """Whether captioner wrote a text: one of the captions, or one in a line like `line`.

    Such a line has another trigger word: one word beside the caption differs.
    """
    return text in captions or any(_is_alike(text, line, caption) for caption in captions)


def _is_alike(text: str, line: str, caption: str) -> bool:
    if not caption or caption not in text or caption not in line:
        return False
    before, _, after = (part.split() for part in text.partition(caption))
    new_before, _, new_after = (part.split() for part in line.partition(caption))
    is_alike = (len(before), len(after)) == (len(new_before), len(new_after))
    return is_alike and sum(map(str.__ne__, before + after, new_before + new_after)) == 1


def copies(text: Path) -> tuple[Path | None, Path]:
    """The last copy of a text, and where the next goes: `photo.txt.before`, `photo.txt.before2`.

    A copy that equals the text is the next: a run was killed before it wrote the text.
    """
    last = None
    for end in chain([""], count(2)):
        copy = text.with_name(f"{text.name}.before{end}")
        if not os.path.lexists(copy) or files.read_bytes(copy) == files.read_bytes(text):
            return last, copy
        last = copy
    raise AssertionError  # There is no last number.
