"""What every reader of captions gives: photos with their captions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from captioner.data.source_problems import Problems

ImageId = int | str
"""What names an image: COCO has whole numbers, other sets have file names."""


@dataclass(frozen=True)
class CaptionedImage:
    """A photo and what people wrote about it.

    image_id: what the source calls it, as text: COCO's number, elsewhere the file name.
    path: where the photo lies.
    captions: at least one, as written, without the white space around them.
    tokens: the words of each caption, if the source brings its own; as many as captions.
    number: COCO's number, where the source has it.
    """

    image_id: str
    path: Path
    captions: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...] | None = None
    number: int | None = None


@dataclass(frozen=True)
class CaptionSet:
    """What was read from one source.

    images: at least one, in the order of the source.
    problems: what was left out; empty unless the reader was told to skip.
    """

    images: list[CaptionedImage]
    problems: Problems
