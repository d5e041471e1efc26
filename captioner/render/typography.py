"""Text on pictures: fonts that are always there, and words laid out in lines."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from PIL import ImageFont

Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont

LINE_HEIGHT = 1.35
"""Distance between two baselines, in font sizes."""

_ELLIPSIS = "…"


def printable(text: str) -> str:
    """Return `text` on one line, without the characters no font and no file can hold.

    Control characters become spaces and lone surrogates (bytes of a file name that are not
    UTF-8) become question marks.
    """
    encodable = text.encode("utf-8", errors="replace").decode("utf-8")
    return " ".join(
        "".join(" " if not letter.isprintable() else letter for letter in encodable).split()
    )


def font_for(text: str, size: int) -> Font:
    """A font of `size` pixels that has the letters of `text`, as far as one is at hand.

    Pillow's own font is preferred; for letters it lacks, the one that comes with matplotlib. What
    neither has is drawn as an empty box.
    """
    letters = frozenset(text)
    own, other = _own_font(size), _wide_font(size)
    if other is None or not _missing(own, letters):
        return own
    return other if len(_missing(other, letters)) < len(_missing(own, letters)) else own


def text_width(text: str, font: Font) -> float:
    """Width of a line of text in pixels."""
    return float(font.getlength(text))


def shortened(text: str, font: Font, width: float) -> str:
    """Return `text`, or as much of its beginning with an ellipsis as `width` pixels hold."""
    if text_width(text, font) <= width:
        return text
    shorter, longer = 0, len(text)  # the longest beginning that fits is in [shorter, longer)
    while longer - shorter > 1:
        middle = (shorter + longer) // 2
        if text_width(text[:middle].rstrip() + _ELLIPSIS, font) <= width:
            shorter = middle
        else:
            longer = middle
    return text[:shorter].rstrip() + _ELLIPSIS


@dataclass(frozen=True)
class PlacedWord:
    """A word on a picture: its text, and the left end of its line box in pixels."""

    text: str
    left: float
    top: float
    width: float


@dataclass(frozen=True)
class Paragraph:
    """Words laid out in lines: where each of them is, and the height of it all, in pixels."""

    words: tuple[PlacedWord, ...]
    font: Font
    line_height: int
    height: int


def lay_out(words: Sequence[str], size: int, width: int, centred: bool = False) -> Paragraph:
    """Lay `words` out in lines of at most `width` pixels, in a font of `size` pixels.

    Every word gets a place, in order; a word wider than a line is shortened.
    """
    texts = [printable(word) or "?" for word in words]
    font = font_for("".join(texts), size)
    space = text_width(" ", font) + size * 0.12
    line_height = round(size * LINE_HEIGHT)
    lines: list[list[tuple[str, float]]] = [[]]
    used = 0.0
    for text in texts:
        text = shortened(text, font, width)
        wide = text_width(text, font)
        if lines[-1] and used + space + wide > width:
            lines.append([])
        used = wide if not lines[-1] else used + space + wide
        lines[-1].append((text, wide))
    placed: list[PlacedWord] = []
    for number, line in enumerate(lines):
        total = sum(wide for _, wide in line) + space * (len(line) - 1)
        left = (width - total) / 2 if centred else 0.0
        for text, wide in line:
            placed.append(PlacedWord(text, left, float(number * line_height), wide))
            left += wide + space
    return Paragraph(tuple(placed), font, line_height, line_height * len(lines))


@functools.lru_cache(maxsize=32)
def _own_font(size: int) -> Font:
    return ImageFont.load_default(size=size)


@functools.lru_cache(maxsize=32)
def _wide_font(size: int) -> Font | None:
    """The DejaVu font among matplotlib's files, found without importing matplotlib."""
    package = importlib.util.find_spec("matplotlib")
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    try:
        return ImageFont.truetype(str(path), size)
    except OSError:
        return None


def _missing(font: Font, letters: frozenset[str]) -> set[str]:
    """The letters that a font draws as its box for a missing one."""
    box = bytes(font.getmask("\U0010fffe"))
    return {letter for letter in letters if bytes(font.getmask(letter)) == box}
