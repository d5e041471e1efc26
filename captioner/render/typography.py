"""Text on pictures: bundled fonts, and words laid out in lines."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

from PIL import ImageFont

Font: TypeAlias = ImageFont.FreeTypeFont
Colour: TypeAlias = tuple[int, int, int]

BACKGROUND = (255, 255, 255)
INK, PALE_INK, DOUBT_INK = (24, 26, 31), (112, 117, 128), (166, 76, 0)
_FONTS = (
    str(Path(__file__).parent / "fonts" / "DejaVuSans.ttf"),
    *("NotoSansCJK-Regular.ttc", "NotoSans-Regular.ttf", "DroidSansFallbackFull.ttf"),
    *("wqy-zenhei.ttc", "msyh.ttc", "YuGothR.ttc", "malgun.ttf", "Nirmala.ttf", "tahoma.ttf"),
    *("PingFang.ttc", "Hiragino Sans GB.ttc", "AppleSDGothicNeo.ttc", "Arial Unicode.ttf"),
)
"""The packaged font, then common ones for letters that it lacks: Chinese, Japanese, Korean."""
LINE_HEIGHT = 1.35  # Between two baselines, in font sizes.


def printable(text: str) -> str:
    """Text on one line: control characters become spaces, lone surrogates question marks."""
    encodable = text.encode(errors="replace").decode()
    letters = (letter if letter.isprintable() else " " for letter in encodable)
    return " ".join("".join(letters).split())


def font_for(text: str, size: int) -> Font:
    """A font of `size` pixels that has the letters of a text, or most of them.

    Pillow's own for ASCII, else DejaVu Sans, which is packaged, else one of the system. Opened anew
    each time, in 0.04 ms: fonts may be installed meanwhile.
    """
    if text.isascii():
        return cast(Font, ImageFont.load_default(size=size))
    missing: dict[Font, str] = {}
    for font in filter(None, (_open_font(name, size) for name in _FONTS)):
        missing[font] = missing_letters(font, text)
        if not missing[font]:
            break
    return min(missing, key=lambda font: len(missing[font]))


def missing_letters(font: Font, text: str) -> str:
    """The distinct letters of a text that a font lacks: it draws a box for them."""
    box = _drawing(font, "\U0010ffff")  # No font has this one.
    letters = (letter for letter in sorted(set(text)) if not letter.isascii())
    return "".join(letter for letter in letters if _drawing(font, letter) == box)


def _open_font(name: str, size: int) -> ImageFont.FreeTypeFont | None:
    """A font by path or, among the system's fonts, by name; None if there is none."""
    with suppress(OSError):
        return ImageFont.truetype(name, size)
    return None


def _drawing(font: Font, letter: str) -> tuple[object, bytes]:
    mask = font.getmask(letter)
    return mask.size, bytes(mask)


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
        ends = {word.top: word.left + word.width for word in placed}  # By line.
        placed = [word._replace(left=word.left + (width - ends[word.top]) / 2) for word in placed]
    height = round(top) + line_height if placed else 0
    return Paragraph(tuple(placed), font, line_height, height)
