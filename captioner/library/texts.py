"""The text beside a photo: whose it is, and the copies of those that captions replaced."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from captioner import files
from captioner.library.words import Words


def content_of(path: Path) -> str:
    """The text in a file, "" without one."""
    return files.read_bytes(path).decode(errors="replace").strip() if os.path.lexists(path) else ""


def is_own(text: str, words: Words, captions: Sequence[str] = ()) -> bool:
    """Whether captioner wrote a text: a caption of `words`, or of these, or one in such a line.

    The line may have another trigger word: one word beside the caption differs, not in case alone.
    """
    captions = [words.caption, words.line, *map(str.strip, words.own_texts), *captions]
    new_frame = _frame(words.line, words.caption)
    frames = [_frame(text, caption) for caption in captions if caption and caption in text]
    return text in captions or any(_has_other_trigger(frame, new_frame) for frame in frames)


def _has_other_trigger(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether one word differs, not in case alone."""
    differing = [pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]]
    is_one = len(old) == len(new) and len(differing) == 1
    return is_one and differing[0][0].casefold() != differing[0][1].casefold()


def _frame(line: str, caption: str) -> list[str]:
    """The words of a line beside its caption, for which "" stands."""
    before, _, after = line.partition(caption)
    return [*before.split(), "", *after.split()]


def numbered(path: Path, ending: str) -> Iterator[Path]:
    """The names `photo.txt.before`, `photo.txt.before2` and so on."""
    for number in chain([""], count(2)):
        yield path.with_name(f"{path.name}.{ending}{number}")


def copies(text: Path) -> tuple[Path | None, Path]:
    """The last copy of a text, and where the next goes.

    A copy that equals the text is the next: a run was killed before it wrote the text.
    """
    last = None
    for copy in numbered(text, "before"):
        if not os.path.lexists(copy) or files.read_bytes(copy) == files.read_bytes(text):
            break
        last = copy
    return last, copy
