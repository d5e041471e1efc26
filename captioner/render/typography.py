"""Text on pictures: bundled fonts, and words laid out in lines."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from typing import TypeAlias

from PIL import ImageDraw, ImageFont

Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont
Colour: TypeAlias = tuple[int, int, int]

BACKGROUND = (255, 255, 255)
INK = (24, 26, 31)
PALE_INK = (112, 117, 128)
DOUBT_INK = (166, 76, 0)

LINE_HEIGHT = 1.35
"""Distance between two baselines, in font sizes."""

_ELLIPSIS = "…"


def printable(text: str) -> str:
    """Text on one line, encodable as UTF-8.

    Control characters become spaces. Lone surrogates (bytes of a file name that are not UTF-8)
    become question marks.
    """
    encodable = text.encode("utf-8", errors="replace").decode("utf-8")
    return " ".join(
        "".join(" " if not letter.isprintable() else letter for letter in encodable).split()
    )


def font_for(text: str, size: int) -> Font:
    """A font of `size` pixels for a text.

    Pillow's own font has the letters of ASCII; DejaVu, bundled with matplotlib, has those of
    European and many other scripts. Letters in neither are drawn as empty boxes.
    """
    return _font(text.isascii(), size)


@functools.lru_cache(maxsize=32)
def _font(is_ascii: bool, size: int) -> Font:
    if is_ascii:
        return ImageFont.load_default(size=size)
    # The file alone: importing matplotlib takes half a second.
    path = distribution("matplotlib").locate_file("matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf")
    return ImageFont.truetype(str(path), size)


def shortened(text: str, font: Font, width: float) -> str:
    """Text, cut with an ellipsis if it is wider than `width` pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + _ELLIPSIS) > width:
        text = text[:-1].rstrip()
    return text + _ELLIPSIS


@dataclass(frozen=True)
class PlacedWord:
    """A word on a picture: its text, and the position and width of its box in pixels."""

    text: str
    left: float
    top: float
    width: float


@dataclass(frozen=True)
class Paragraph:
    """Words laid out in lines; heights in pixels."""

    words: tuple[PlacedWord, ...]
    font: Font
    line_height: int
    height: int

    def write(self, pen: ImageDraw.ImageDraw, left: int, top: int, ink: Colour) -> None:
        """Write the words on a picture."""
        for word in self.words:
            place = (left + word.left, top + word.top)
            pen.text(place, word.text, fill=ink, font=self.font)


def lay_out(words: Sequence[str], size: int, width: int, centred: bool = False) -> Paragraph:
    """Lay out words in lines of at most `width` pixels; a word wider than a line is shortened."""
    texts = [printable(word) or "?" for word in words]
    font = font_for("".join(texts), size)
    space = font.getlength(" ") + size * 0.12
    line_height = round(size * LINE_HEIGHT)
    placed: list[PlacedWord] = []
    left = top = 0.0
    for text in texts:
        text = shortened(text, font, width)
        advance = font.getlength(text)
        if left > 0 and left + advance > width:
            left, top = 0.0, top + line_height
        placed.append(PlacedWord(text, left, top, advance))
        left += advance + space
    if centred:
        ends = {word.top: word.left + word.width for word in placed}  # Of the line's last word.
        placed = [replace(word, left=word.left + (width - ends[word.top]) / 2) for word in placed]
    height = round(top) + line_height if placed else 0
    return Paragraph(tuple(placed), font, line_height, height)
