"""A caption as one picture: the photo, then one panel a word. Xu et al. 2015, figure 3."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy.typing as npt
from PIL import Image, ImageDraw

from captioner.render.attention_checks import check_attention, check_probabilities
from captioner.render.overlay import overlay
from captioner.render.region import Region, fit
from captioner.render.typography import (
    BACKGROUND,
    INK,
    font_for,
    lay_out,
    printable,
    shortened,
    text_width,
)

PALE_INK = (112, 117, 128)

MARGIN = 24
GAP = 16
NARROWEST_CELL = 120
WORD_SIZE = 24
SMALLEST_WORD_SIZE = 14
NOTE_SIZE = 15
CAPTION_SIZE = 30
MOST_COLUMNS = 5


def panels(
    photo: Image.Image,
    words: Sequence[str],
    attention: npt.ArrayLike,
    region: Region,
    caption: str | None = None,
    title: str = "",
    probabilities: Sequence[float] | None = None,
    columns: int | None = None,
    panel_size: int = 260,
    strength: float = 0.8,
) -> Image.Image:
    """Draw the photo and, for each word, where the model looked; returns an RGB image.

    words: the T words of the caption.
    attention: (T, rows, columns), the map of each word.
    region: the part of the photo the maps cover.
    caption: the line on top; the words by default, "" for none.
    title: a small line above the caption, such as the name of the file.
    probabilities: of each word given those before it, shown under the words.
    columns: panels in a row; at most five, evenly filled, by default.
    panel_size: longer side of the photo in a panel, in pixels.
    strength: of the overlay, see `overlay`.

    Raises `ValueError` as `check_attention`, `check_region`, `overlay` and `check_probabilities`
    do, and for `columns` below 1.
    """
    maps = check_attention(words, attention)
    notes = [""] * len(words)
    if probabilities is not None:
        notes = [f"{value:.1%}" for value in check_probabilities(probabilities, words)]
    small, small_region = fit(photo, region, panel_size)
    pictures = [small] + [overlay(small, weights, small_region, strength) for weights in maps]
    labels = ["", *words]

    columns = _columns(len(pictures), columns)
    rows = math.ceil(len(pictures) / columns)
    cell_width = max(small.width, NARROWEST_CELL)
    label_height = round(WORD_SIZE * 1.5) + (0 if probabilities is None else NOTE_SIZE + 5)
    cell_height = label_height + small.height
    width = 2 * MARGIN + columns * cell_width + (columns - 1) * GAP

    text = " ".join(words) if caption is None else caption
    title = printable(title)
    heading = lay_out(text.split(), CAPTION_SIZE, width - 2 * MARGIN) if text.strip() else None
    title_height = NOTE_SIZE + 10 if title else 0
    heading_height = heading.height if heading else 0
    cells_top = MARGIN + title_height + heading_height + (GAP if title or heading else 0)
    height = cells_top + rows * cell_height + (rows - 1) * GAP + MARGIN

    canvas = Image.new("RGB", (width, height), BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    if title:
        font = font_for(title, NOTE_SIZE)
        line = shortened(title, font, width - 2 * MARGIN)
        pen.text((MARGIN, MARGIN), line, fill=PALE_INK, font=font)
    if heading:
        for word in heading.words:
            place = (MARGIN + word.left, MARGIN + title_height + word.top)
            pen.text(place, word.text, fill=INK, font=heading.font)
    for position, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        row, column = divmod(position, columns)
        left = MARGIN + column * (cell_width + GAP)
        top = cells_top + row * (cell_height + GAP)
        canvas.paste(picture, (left + (cell_width - picture.width) // 2, top + label_height))
        if label:
            _write_word(pen, label, left, top, cell_width)
            note = notes[position - 1]
            font = font_for(note, NOTE_SIZE)
            middle = left + (cell_width - text_width(note, font)) / 2
            pen.text((middle, top + round(WORD_SIZE * 1.35)), note, fill=PALE_INK, font=font)
    return canvas


def _columns(panel_count: int, columns: int | None) -> int:
    if columns is None:
        return math.ceil(panel_count / math.ceil(panel_count / MOST_COLUMNS))
    if columns < 1:
        raise ValueError(f"columns is {columns}, but there must be at least one")
    return min(columns, panel_count)


def _write_word(pen: ImageDraw.ImageDraw, word: str, left: int, top: int, width: int) -> None:
    """Write a word centred in its cell; a word too wide is drawn smaller, then shortened."""
    text = printable(word)
    sizes = range(WORD_SIZE, SMALLEST_WORD_SIZE - 1, -2)
    fonts = [font_for(text, size) for size in sizes]
    font = next((font for font in fonts if text_width(text, font) <= width), fonts[-1])
    text = shortened(text, font, width)
    middle = left + (width - text_width(text, font)) / 2
    pen.text((middle, top + WORD_SIZE * 1.1), text, fill=INK, font=font, anchor="ls")
