"""Pictures of screens, drawn: windows, tables, code, pages of text."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from captioner.data.outlier_surfaces import Size

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_SYLLABLES = (
    "ba",
    "con",
    "de",
    "el",
    "fi",
    "gra",
    "in",
    "lo",
    "men",
    "no",
    "pre",
    "ra",
    "ti",
    "un",
)
_KEYWORDS = ("def", "for", "if", "return", "import", "while", "class", "else:", "with", "try:")


def words(random: np.random.Generator, count: int) -> list[str]:
    """So many made-up words of one to four syllables."""
    return [
        "".join(str(part) for part in random.choice(_SYLLABLES, int(random.integers(1, 5))))
        for _ in range(count)
    ]


def text(random: np.random.Generator, count: int) -> str:
    """So many made-up words with spaces between them."""
    return " ".join(words(random, count))


def tint(random: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    """A random colour whose parts lie from `low` to `high`, 255 being full."""
    red, green, blue = (int(part) for part in random.integers(low, high + 1, 3))
    return red, green, blue


def _filled(random: np.random.Generator, font: Font, width: float) -> str:
    """A line of made-up words, as many as are not wider than `width` pixels."""
    line, longer = "", text(random, 1)
    while font.getlength(longer) <= width:
        line, longer = longer, f"{longer} {text(random, 1)}"
    return line


def _canvas(size: Size, colour: tuple[int, int, int]) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", size, colour)
    return image, ImageDraw.Draw(image)


def windows(random: np.random.Generator, size: Size) -> Image.Image:
    """A desktop with overlapping windows: title bars, menus, buttons, lines of text."""
    width, height = size
    image, draw = _canvas(size, tint(random, 20, 200))
    draw.rectangle((0, height - 18, width, height), fill=tint(random, 10, 70))
    for left in range(6, width // 2, 24):
        draw.rectangle((left, height - 15, left + 12, height - 4), fill=tint(random, 90, 255))
    title, body = ImageFont.load_default(11), ImageFont.load_default(9)
    for _ in range(int(random.integers(1, 4))):
        wide, high = int(random.uniform(0.5, 0.9) * width), int(random.uniform(0.5, 0.85) * height)
        left = int(random.integers(0, width - wide))
        top = int(random.integers(0, max(1, height - high - 18)))
        dark = random.random() < 0.3
        paper, ink = (tint(random, 25, 60), (225, 225, 225)) if dark else ((248,) * 3, (30, 30, 30))
        draw.rectangle((left, top, left + wide, top + high), fill=paper, outline=(90, 90, 90))
        draw.rectangle((left, top, left + wide, top + 16), fill=tint(random, 50, 220))
        draw.text((left + 5, top + 2), text(random, 2), fill=(255, 255, 255), font=title)
        for place, colour in enumerate(((230, 80, 70), (240, 190, 60), (90, 190, 90))):
            right = left + wide - 12 - 14 * place
            draw.ellipse((right, top + 4, right + 8, top + 12), fill=colour)
        draw.text((left + 5, top + 19), "   ".join(words(random, 3)), fill=ink, font=body)
        for line in range(top + 36, top + high - 30, 12):
            if random.random() < 0.75:
                draw.text((left + 8, line), text(random, 3), fill=ink, font=body)
        for place in range(int(random.integers(1, 4))):
            box = (left + 8 + 58 * place, top + high - 22, left + 58 + 58 * place, top + high - 7)
            draw.rounded_rectangle(box, 4, fill=tint(random, 90, 220), outline=(70, 70, 70))
    return image


def table(random: np.random.Generator, size: Size) -> Image.Image:
    """A spreadsheet: a grid with a coloured head and a number or a word in each cell."""
    width, height = size
    image, draw = _canvas(size, (255, 255, 255))
    font = ImageFont.load_default(int(random.integers(8, 12)))
    row, column = int(random.integers(13, 24)), int(random.integers(36, 80))
    head = tint(random, 60, 230)
    for top in range(0, height, row):
        banded = (top // row) % 2 and width % 2 == 0
        fill = head if top == 0 else (238, 242, 248) if banded else (255, 255, 255)
        draw.rectangle((0, top, width, top + row), fill=fill, outline=(190, 190, 190))
        for left in range(0, width, column):
            named = top == 0 or left == 0
            cell = words(random, 1)[0] if named else f"{random.uniform(-100, 5000):,.2f}"
            draw.text((left + 3, top + 2), cell[: column // 6], fill=(20, 20, 20), font=font)
    for left in range(0, width, column):
        draw.line((left, 0, left, height), fill=(190, 190, 190))
    return image


def code(random: np.random.Generator, size: Size) -> Image.Image:
    """A program in an editor: indented lines of coloured words, with line numbers."""
    _, height = size
    dark = random.random() < 0.7
    paper = tint(random, 15, 50) if dark else (252, 252, 250)
    low, high = (130, 255) if dark else (0, 140)
    image, draw = _canvas(size, paper)
    step = int(random.integers(10, 15))
    font = ImageFont.load_default(step - 2)
    colours = [tint(random, low, high) for _ in range(5)]
    indent = 0
    for number, top in enumerate(range(4, height, step), start=1):
        draw.text((3, top), f"{number:>3}", fill=(128, 128, 128), font=font)
        if random.random() < 0.12:
            continue
        indent = int(np.clip(indent + random.integers(-1, 2), 0, 4))
        left = 26.0 + 14 * indent
        parts = [str(random.choice(_KEYWORDS))] if random.random() < 0.6 else []
        for word in words(random, int(random.integers(1, 5))):
            parts.append(word + str(random.choice(("", "()", " =", ".", "[0]", ":"))))
        for part in parts:
            draw.text((left, top), part, fill=colours[int(random.integers(5))], font=font)
            left += font.getlength(part + " ")
    return image


def page(random: np.random.Generator, size: Size) -> Image.Image:
    """A page of text: a heading and paragraphs of black words on white."""
    width, height = size
    image, draw = _canvas(size, tint(random, 238, 255))
    letters = int(random.integers(8, 16))
    font, heading = ImageFont.load_default(letters), ImageFont.load_default(letters + 7)
    margin = int(random.integers(6, 30))
    draw.text((margin, margin), text(random, 3), fill=(10, 10, 10), font=heading)
    top = margin + 2 * letters + 12
    while top < height - margin:
        for _ in range(int(random.integers(2, 7))):
            line = _filled(random, font, width - 2 * margin)
            draw.text((margin, top), line, fill=(25, 25, 25), font=font)
            top += letters + 4
        top += letters
    return image
