"""Text on pictures: bundled fonts, and words laid out in lines."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.metadata import distribution
from typing import NamedTuple, TypeAlias

from PIL import ImageFont

Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont
Colour: TypeAlias = tuple[int, int, int]

BACKGROUND = (255, 255, 255)
INK, PALE_INK, DOUBT_INK = (24, 26, 31), (112, 117, 128), (166, 76, 0)
LINE_HEIGHT = 1.35  # Between two baselines, in font sizes.


def printable(text: str) -> str:
    """Text on one line: control characters become spaces, lone surrogates question marks."""
    encodable = text.encode(errors="replace").decode()
    letters = (letter if letter.isprintable() else " " for letter in encodable)
    return " ".join("".join(letters).split())


def font_for(text: str, size: int) -> Font:
    """A font of `size` pixels: Pillow's for ASCII, else matplotlib's DejaVu, then boxes."""
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
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1].rstrip()
    return f"{text}…"


class PlacedWord(NamedTuple):
    """A word on a picture: its text, and the position and width of its box in pixels."""

    text: str
    left: float
    top: float
    width: float


class Paragraph(NamedTuple):
    """Words laid out in lines; heights in pixels."""

    words: tuple[PlacedWord, ...]
    font: Font
    line_height: int
    height: int


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
        placed = [word._replace(left=word.left + (width - ends[word.top]) / 2) for word in placed]
    height = round(top) + line_height if placed else 0
    return Paragraph(tuple(placed), font, line_height, height)
