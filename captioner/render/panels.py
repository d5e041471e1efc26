"""A caption as one picture: the photo, then one panel a word. Xu et al. 2015, figure 3."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt
from PIL import Image, ImageDraw

from captioner.render.attention_checks import check_attention
from captioner.render.overlay import overlay
from captioner.render.phrases import phrases
from captioner.render.region import Region, fit
from captioner.render.typography import (
    BACKGROUND,
    DOUBT_INK,
    INK,
    PALE_INK,
    Font,
    Paragraph,
    font_for,
    lay_out,
    printable,
    shortened,
)
from captioner.text.function_words import is_function_word

MARGIN = 24
GAP = 16
NARROWEST_CELL = 120
WORD_SIZE = 24
SMALLEST_WORD_SIZE = 14
NOTE_SIZE = 15
CAPTION_SIZE = 30
DOUBT_SIZE = 20
MOST_COLUMNS = 5

FLATTEST = 0.6
"""Smallest shorter side of a panel, as a fraction of `panel_size`, as far as the sheet allows."""


def panels(
    photo: Image.Image,
    words: Sequence[str],
    attention: npt.ArrayLike,
    region: Region,
    caption: str | None = None,
    title: str = "",
    doubt: str = "",
    probabilities: Sequence[float] | None = None,
    panel_size: int = 260,
    strength: float = 0.8,
    language: str = "en",
) -> Image.Image:
    """Draw the photo and, for each word, where the model looked; returns an RGB image.

    Function words have panels of half the size. A sheet is as wide as five panels at most; those of
    a panorama share its width.

    words: the T words of the caption.
    attention: (T, rows, columns), the map of each word.
    region: the part of the photo the maps cover.
    caption: the line on top; the words by default, "" for none.
    title: a small line above the caption, such as the name of the file.
    doubt: a line below the caption, such as "not sure".
    probabilities: of each word given those before it, shown under the words, with a legend.
    panel_size: longer side of the photo in a panel, in pixels.
    strength: of the overlay, see `overlay`.
    language: of the words, a tag such as "de": which of them are function words, and the legend.

    Raises `ValueError` as `check_attention`, `check_region` and `overlay` do.
    """
    maps = check_attention(words, attention)
    notes = [""] * len(words)
    if probabilities is not None:
        notes = [f"{value:.0%}" for value in probabilities]
    side, columns = _panel(photo.size, panel_size)
    large, large_region = fit(photo, region, side)
    half = max((large.width - GAP) // 2, NARROWEST_CELL // 2)  # Two of them and a gap: a cell.
    small, small_region = fit(photo, region, max(1, side * half // (2 * half + GAP)))
    is_small = [is_function_word(word, language) for word in words]
    rows = _rows([2, *(1 if each else 2 for each in is_small)], 2 * columns)
    units = max(sum(width for _, width in row) for row in rows)
    width = 2 * MARGIN + units * half + (units - 1) * GAP
    pictures = [large] + [
        overlay(small, weights, small_region, strength)
        if each
        else overlay(large, weights, large_region, strength)
        for each, weights in zip(is_small, maps, strict=True)
    ]
    labels = list(zip(["", *words], ["", *notes], strict=True))

    text = " ".join(words) if caption is None else caption
    lines = [
        *_lines(title, NOTE_SIZE, PALE_INK, width, 4),
        *_lines(text, CAPTION_SIZE, INK, width, 0),
        *_lines(doubt, DOUBT_SIZE, DOUBT_INK, width, 0),
    ]
    explained = "" if probabilities is None else phrases(language).legend
    legend = _lines(explained, NOTE_SIZE, PALE_INK, width, 0)
    label_height = round(WORD_SIZE * 1.5) + (0 if probabilities is None else NOTE_SIZE + 5)
    heights = [label_height + max(pictures[place].height for place, _ in row) for row in rows]
    height = 2 * MARGIN + sum(heights) + GAP * (len(rows) - 1)
    height += sum(each.height + below for each, _, below in [*lines, *legend])
    height += GAP * (bool(lines) + bool(legend))

    sizes = range(WORD_SIZE, SMALLEST_WORD_SIZE - 1, -2)
    fonts = [font_for(printable("".join(words)), size) for size in sizes]  # One for all words.
    canvas = Image.new("RGB", (width, height), BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    top = MARGIN
    for line in lines:
        top = _write_paragraph(pen, *line, top)
    top += GAP * bool(lines)
    for row, row_height in zip(rows, heights, strict=True):
        unit = 0
        for place, cell in row:
            left = MARGIN + unit * (half + GAP)
            cell_width = cell * half + (cell - 1) * GAP
            picture = pictures[place]
            centre = left + (cell_width - picture.width) // 2
            canvas.paste(picture, (centre, top + label_height))
            word, note = labels[place]
            if word:
                _write_word(pen, word, fonts, left, top, cell_width)
                font = font_for(note, NOTE_SIZE)
                middle = left + (cell_width - font.getlength(note)) / 2
                pen.text((middle, top + round(WORD_SIZE * 1.35)), note, fill=PALE_INK, font=font)
            unit += cell
        top += row_height + GAP
    for line in legend:
        top = _write_paragraph(pen, *line, top)
    return canvas


def _panel(size: tuple[int, int], panel_size: int) -> tuple[int, int]:
    """Longer side of a panel in pixels, and how many fit side by side.

    A panorama's panels are larger, and fill the sheet; those of a tall photo are as high as two.
    """
    width, height = size
    sheet = MOST_COLUMNS * (panel_size + GAP)  # The last gap is not drawn.
    longest = max(panel_size, round(panel_size * FLATTEST * max(size) / min(size)))
    if height > width:
        return min(longest, 2 * panel_size), MOST_COLUMNS
    columns = max(1, sheet // (longest + GAP))
    return sheet // columns - GAP, columns


def _rows(widths: Sequence[int], most: int) -> list[list[tuple[int, int]]]:
    """The places of `widths`, each with its width, in rows that are as even as can be.

    most: the largest sum of the widths in a row.
    """

    def filled(limit: int) -> list[list[tuple[int, int]]]:
        rows: list[list[tuple[int, int]]] = [[]]
        used = 0
        for place, width in enumerate(widths):
            if used + width > limit and rows[-1]:
                rows.append([])
                used = 0
            rows[-1].append((place, width))
            used += width
        return rows

    fewest = len(filled(most))
    return next(rows for limit in range(2, most + 1) if len(rows := filled(limit)) == fewest)


Line = tuple[Paragraph, tuple[int, int, int], int]
"""Text, its colour, and the pixels below it."""


def _lines(text: str, size: int, ink: tuple[int, int, int], width: int, below: int) -> list[Line]:
    """The text laid out for a sheet of `width` pixels; empty without text."""
    words = printable(text).split()
    return [(lay_out(words, size, width - 2 * MARGIN), ink, below)] if words else []


def _write_paragraph(
    pen: ImageDraw.ImageDraw,
    paragraph: Paragraph,
    ink: tuple[int, int, int],
    below: int,
    top: int,
) -> int:
    """Write a `Line` at the left margin; returns where the next one begins."""
    for word in paragraph.words:
        place = (MARGIN + word.left, top + word.top)
        pen.text(place, word.text, fill=ink, font=paragraph.font)
    return top + paragraph.height + below


def _write_word(
    pen: ImageDraw.ImageDraw, word: str, fonts: Sequence[Font], left: int, top: int, width: int
) -> None:
    """Write a word centred in its cell, in the first of the fonts that fits, or shortened."""
    text = printable(word)
    font = next((font for font in fonts if font.getlength(text) <= width), fonts[-1])
    text = shortened(text, font, width)
    middle = left + (width - font.getlength(text)) / 2
    pen.text((middle, top + WORD_SIZE * 1.1), text, fill=INK, font=font, anchor="ls")
