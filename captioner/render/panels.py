"""A caption as one picture, a panel a word (Xu et al. 2015, figure 3), and as a GIF."""

import io
import os
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from captioner.errors import UserError
from captioner.files import write_bytes
from captioner.render.overlay import MappedCaption, Region, check_suffix, fit, overlay
from captioner.render.page import DOUBTFUL, phrases
from captioner.render.typography import (
    BACKGROUND,
    DOUBT_INK,
    INK,
    LINE_HEIGHT,
    PALE_INK,
    Colour,
    Font,
    font_for,
    lay_out,
    printable,
    shortened,
)
from captioner.text.languages import is_function_word

MARGIN, GAP = 24, 16
NARROWEST_CELL, MOST_COLUMNS = 120, 5
WORD_SIZE, SMALLEST_WORD_SIZE = 24, 14
CAPTION_SIZE, DOUBT_SIZE, NOTE_SIZE = 30, 20, 15

HIGHLIGHT = (255, 200, 87)
FRAME_MARGIN = 16
_FRAME_CAPTION, _FRAME_NOTE = 22, 16
_NARROWEST_FRAME, _LONGEST_SIDE = 320, 480
_LEAST_WIDTH, _MOST_WIDTH, _TALLEST = 64, 2048, 4096  # Of frames of a given width.
WORD_MILLISECONDS = 800


class _Cell(NamedTuple):
    """A panel, its width in half panels (1 or 2), its word in an ink, and a note below it."""

    picture: Image.Image
    units: int
    word: str = ""
    note: str = ""
    ink: Colour = INK


def panels(
    photo: Image.Image,
    region: Region,
    caption: MappedCaption,
    title: str = "",
    panel_size: int = 260,
    strength: float = 0.8,
) -> Image.Image:
    """Draw the photo and, for each word, where the model looked; returns an RGB image.

    Function words have panels of half the size. A sheet is as wide as five panels at most. With
    `word_confidence` there is a legend, and words below `DOUBTFUL` are paler.

    region: the part of the photo that the maps cover. title: a small line above the caption.
    panel_size: longer side of the photo in a panel, in pixels. strength: see `overlay`.
    """
    words, confidences = caption.words, caption.word_confidence
    erased = {word.position: word for word in caption.erased}
    large = fit(photo, region, panel_size)
    half = max((large[0].width - GAP) // 2, NARROWEST_CELL // 2)  # Two of them and a gap: a cell.
    small = fit(photo, region, max(1, panel_size * half // (2 * half + GAP)))
    cells = [_Cell(large[0], 2)]
    for position, (word, weights) in enumerate(zip(words, caption.attention, strict=True)):
        is_small = is_function_word(word, caption.language)
        drawn, drawn_region = small if is_small else large
        picture = overlay(drawn, weights, drawn_region, strength)
        cell = _Cell(picture, 1 if is_small else 2, printable(word))
        share = confidences[position] if confidences else None
        if position in erased:
            whole, without, _ = erased[position].probabilities
            cell = cell._replace(note=f"{whole:.0%}, {without:.0%} without")
        elif share is not None and not erased:
            cell = cell._replace(note=f"{share:.0%}", ink=PALE_INK if share < DOUBTFUL else INK)
        cells.append(cell)
    rows = _rows(cells, 2 * MOST_COLUMNS)
    units = max(sum(cell.units for cell in row) for row in rows)
    width = 2 * MARGIN + units * half + (units - 1) * GAP
    sizes = range(WORD_SIZE, SMALLEST_WORD_SIZE - 1, -2)
    fonts = [font_for(printable("".join(words)), size) for size in sizes]  # One for all words.
    has_notes = confidences is not None or bool(erased)
    label_height = round(WORD_SIZE * 1.5) + (NOTE_SIZE + 5 if has_notes else 0)
    header = [
        *_lines(title, NOTE_SIZE, PALE_INK, width, below=4),
        *_lines(" ".join(words), CAPTION_SIZE, INK, width),
        *_lines(caption.doubt, DOUBT_SIZE, DOUBT_INK, width),
    ]
    texts = phrases(caption.language)
    legend = texts.erased if erased else texts.legend
    parts = [
        _stack(header),
        *(_row(row, half, fonts, label_height, width) for row in rows),
        *_lines(legend if has_notes else "", NOTE_SIZE, PALE_INK, width),
    ]
    return ImageOps.expand(_stack(parts, GAP), (0, MARGIN), BACKGROUND)


def _rows(cells: Sequence[_Cell], most: int) -> list[list[_Cell]]:
    """The cells in as few rows as can be, of at most `most` units, and as even as can be."""

    def filled(limit: int) -> list[list[_Cell]]:
        rows: list[list[_Cell]] = [[]]
        for cell in cells:
            if rows[-1] and sum(other.units for other in rows[-1]) + cell.units > limit:
                rows.append([])
            rows[-1].append(cell)
        return rows

    fewest = len(filled(most))
    return next(rows for rows in map(filled, range(2, most + 1)) if len(rows) == fewest)


def _row(
    cells: Sequence[_Cell], half: int, fonts: Sequence[Font], label_height: int, width: int
) -> Image.Image:
    """Draw cells side by side. half: pixels of a unit. fonts: the first that fits is used."""
    height = label_height + max(cell.picture.height for cell in cells)
    row = Image.new("RGB", (width, height), BACKGROUND)
    pen = ImageDraw.Draw(row)
    left = MARGIN
    for cell in cells:
        cell_width = cell.units * half + (cell.units - 1) * GAP
        row.paste(cell.picture, (left + (cell_width - cell.picture.width) // 2, label_height))
        middle = left + cell_width / 2
        font = next((font for font in fonts if font.getlength(cell.word) <= cell_width), fonts[-1])
        word = shortened(cell.word, font, cell_width)
        pen.text((middle, WORD_SIZE * 1.1), word, fill=cell.ink, font=font, anchor="ms")
        font = font_for(cell.note, NOTE_SIZE)
        pen.text((middle, WORD_SIZE * 1.35), cell.note, fill=PALE_INK, font=font, anchor="ma")
        left += cell_width + GAP
    return row


def _lines(text: str, size: int, ink: Colour, width: int, below: int = 0) -> list[Image.Image]:
    """The text as a picture with `below` pixels below it; none without text."""
    paragraph = lay_out(printable(text).split(), size, width - 2 * MARGIN)
    if not paragraph.words:
        return []
    picture = Image.new("RGB", (width, paragraph.height + below), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    for word in paragraph.words:
        pen.text((MARGIN + word.left, word.top), word.text, fill=ink, font=paragraph.font)
    return [picture]


def _stack(pictures: Sequence[Image.Image], gap: int = 0) -> Image.Image:
    tops = [0, *accumulate(picture.height + gap for picture in pictures)]
    canvas = Image.new("RGB", (pictures[0].width, tops[-1] - gap), BACKGROUND)
    for picture, top in zip(pictures, tops, strict=False):
        canvas.paste(picture, (0, top))
    return canvas


def frames(
    photo: Image.Image,
    region: Region,
    caption: MappedCaption,
    strength: float = 0.8,
    width: int = 0,
) -> list[Image.Image]:
    """Draw an RGB frame a word, of one size: the overlay, and the caption, the word lit.

    Arguments are those of `panels`; a word's confidence stands below the caption. width: of the
        frames, in pixels, 64 to 2048; 0: the photo's longer side has 480.
    """
    if width and not _LEAST_WIDTH <= width <= _MOST_WIDTH:
        limits = f"{_LEAST_WIDTH} to {_MOST_WIDTH}"
        raise UserError(f"the width of a GIF, {width}, is not {limits} pixels")
    side = min(round(width * max(photo.size) / photo.width), _TALLEST) or _LONGEST_SIDE
    drawn_photo, drawn_region = fit(photo, region, side)
    width = width or max(drawn_photo.width, _NARROWEST_FRAME)
    paragraph = lay_out(caption.words, _FRAME_CAPTION, width - 2 * FRAME_MARGIN, centred=True)
    line_height = round(_FRAME_NOTE * LINE_HEIGHT)
    drawn = []
    pairs = zip(caption.words, caption.attention, strict=True)
    for current, (word, weights) in enumerate(pairs):
        lines = [(caption.doubt, DOUBT_INK)] if caption.doubt else []
        if caption.word_confidence:
            share = caption.word_confidence[current]
            lines.append(("" if share is None else f"{word}: {share:.0%}", PALE_INK))
        picture = overlay(drawn_photo, weights, drawn_region, strength)
        height = picture.height + paragraph.height + len(lines) * line_height + 2 * FRAME_MARGIN
        canvas = Image.new("RGB", (width, height), BACKGROUND)
        canvas.paste(picture, ((width - picture.width) // 2, 0))
        pen = ImageDraw.Draw(canvas)
        top = picture.height + FRAME_MARGIN
        for position, placed in enumerate(paragraph.words):
            left, line_top = FRAME_MARGIN + placed.left, top + placed.top
            if position == current:
                bottom = line_top + paragraph.line_height - 2
                box = (left - 4, line_top, left + placed.width + 4, bottom)
                pen.rounded_rectangle(box, radius=5, fill=HIGHLIGHT)
            ink = INK if position <= current else PALE_INK
            baseline = (left, line_top + _FRAME_CAPTION)
            pen.text(baseline, placed.text, fill=ink, font=paragraph.font, anchor="ls")
        top += paragraph.height
        for text, ink in lines:
            font = font_for(printable(text), _FRAME_NOTE)
            line = shortened(printable(text), font, width - 2 * FRAME_MARGIN)
            pen.text((width / 2, top), line, fill=ink, font=font, anchor="ma")
            top += line_height
        drawn.append(canvas)
    return drawn


def encode_gif(drawn: Sequence[Image.Image]) -> bytes:
    """Encode `frames` as an endless GIF; all share 256 colours, so that nothing flickers."""
    # Colours are chosen by every fourth row and column.
    sample = np.concatenate([np.asarray(frame)[::4, ::4] for frame in drawn])
    palette = Image.fromarray(sample).quantize(256)
    coloured = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in drawn]
    # Pillow makes a palette for every frame unless it gets one. Loop 0 is endless.
    animation = {"save_all": True, "append_images": coloured[1:], "loop": 0, "optimize": False}
    colours, time = palette.getpalette(), WORD_MILLISECONDS
    buffer = io.BytesIO()
    coloured[0].save(buffer, "GIF", palette=colours, duration=time, **animation)
    return buffer.getvalue()


def save_gif(path: str | os.PathLike[str], drawn: Sequence[Image.Image]) -> None:
    """Write `frames` to a file that ends in .gif."""
    check_suffix(path, (".gif",))
    write_bytes(path, encode_gif(drawn))
