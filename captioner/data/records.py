"""Photos with their captions, as every reader returns them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from captioner.data.source_problems import Problems

ImageId = int | str
"""COCO's number, or a file name."""


@dataclass(frozen=True)
class CaptionedImage:
    """A photo and its captions.

    image_id: COCO's number, else the file name.
    captions: at least one, stripped.
    tokens: the source's own words of each caption.
    """

    image_id: ImageId
    path: Path
    captions: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...] | None = None


@dataclass(frozen=True)
class CaptionSet:
    """Images of a source, in its order.

    problems: of the skipped records, of all splits that were read together.
    note: how the images were chosen, where the source does not say it.
    """

    images: list[CaptionedImage]
    problems: Problems
    note: str = ""
