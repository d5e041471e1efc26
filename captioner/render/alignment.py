"""Alignments as heat maps: source words across the top, target words down the side."""

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from captioner.arrays import Array
from captioner.errors import UserError
from captioner.render.overlay import save_picture
from captioner.render.page import escaped, web_page
from captioner.render.typography import BACKGROUND, INK, Font, font_for, missing_letters, printable

_CELL, _TEXT, _MARGIN, _GAP = 48, 20, 15, 7  # Pixels: a cell's side, a font's size, two distances.
_LONGEST = 9_000  # Pixels of all cells side by side.
_TILT = 60  # Degrees.
_FULL, _LINE = (31, 95, 208), (217, 217, 212)


class Alignment(NamedTuple):
    """Attention of T target tokens or words over S of the source. weights: (T, S), at least 0."""

    source: Sequence[str]
    target: Sequence[str]
    weights: Array


def save_heat_map(path: str | os.PathLike[str], alignment: Alignment) -> str:
    """Draw a heat map with words on both axes; white is 0, full colour is 1.

    Returns the distinct letters that the fonts here lack, which are drawn as boxes.
    """
    if not alignment.target or not alignment.source:
        raise UserError(f"cannot draw {path}: the translation is empty")
    save_picture(path, heat_map(alignment))
    text = _text(alignment)
    return missing_letters(font_for(text, _TEXT), text)


def heat_map(alignment: Alignment) -> Image.Image:
    """The picture of `save_heat_map`."""
    weights = np.asarray(alignment.weights, dtype=float).clip(0, 1)  # (T, S)
    cell = max(2, min(_CELL, _LONGEST // max(weights.shape)))
    font = font_for(_text(alignment), min(_TEXT, cell))
    rows = [_label(word, font) for word in alignment.target]
    columns = [_label(word, font) for word in alignment.source]
    tilted = [label.rotate(_TILT, Image.Resampling.BICUBIC, expand=True) for label in columns]

    left = _MARGIN + _GAP + max(label.width for label in rows)
    top = _MARGIN + _GAP + max(label.height for label in tilted)
    right = left + cell * weights.shape[1]
    bottom = top + cell * weights.shape[0]
    # The columns' labels begin over the middles of their cells.
    angle = math.radians(_TILT)
    places = []
    for number, (label, turned) in enumerate(zip(columns, tilted, strict=True)):
        centre_x = left + cell * (number + 0.5) + label.width / 2 * math.cos(angle)
        centre_y = top - _GAP - label.width / 2 * math.sin(angle)
        places.append((round(centre_x - turned.width / 2), round(centre_y - turned.height / 2)))
    widest = max(x + turned.width for (x, _), turned in zip(places, tilted, strict=True))

    picture = Image.new("RGB", (max(right, widest) + _MARGIN, bottom + _MARGIN), BACKGROUND)
    white = np.array(BACKGROUND)
    colours = white + weights[..., None] * (np.array(_FULL) - white)  # (T, S) -> (T, S, 3)
    cells = Image.fromarray(np.rint(colours).astype(np.uint8))
    picture.paste(cells.resize((right - left, bottom - top), Image.Resampling.NEAREST), (left, top))
    pen = ImageDraw.Draw(picture)
    for x in range(left, right + 1, cell):
        pen.line((x, top, x, bottom), _LINE)
    for y in range(top, bottom + 1, cell):
        pen.line((left, y, right, y), _LINE)
    for place, turned in zip(places, tilted, strict=True):
        picture.paste(INK, place, turned)
    for number, label in enumerate(rows):
        y = top + cell * number + (cell - label.height) // 2
        picture.paste(INK, (left - _GAP - label.width, y), label)
    return picture


def _text(alignment: Alignment) -> str:
    return printable(" ".join([*alignment.source, *alignment.target]))


def _label(word: str, font: Font) -> Image.Image:
    """A word on one line, as a mask of its ink."""
    text = printable(word)
    ascent, descent = font.getmetrics()
    mask = Image.new("L", (max(1, math.ceil(font.getlength(text))), ascent + descent))
    ImageDraw.Draw(mask).text((0, 0), text, 255, font)
    return mask


def alignment_page(alignments: Sequence[tuple[str, Alignment]]) -> str:
    """A standalone page with a heat map for each item; a tooltip shows a cell's weight."""
    body = "<h1>Alignments</h1>\n"
    for number, (heading, (source, target, weights)) in enumerate(alignments, start=1):
        heads = "".join(f"<th scope=col><span>{escaped(word)}</span></th>" for word in source)
        rows = ""
        for written, row in zip(map(escaped, target), np.asarray(weights, float), strict=True):
            rows += f"<tr><th scope=row>{written}</th>"
            for word, weight in zip(map(escaped, source), row, strict=True):
                title = f"{written} - {word}: {weight:.3f}"
                rows += f'<td style="--w:{min(1.0, weight):.3f}" title="{title}"></td>'
            rows += "</tr>"
        table = f"<table><tr><td></td>{heads}</tr>{rows}</table>" if rows else ""
        body += f"<section><h2>{number}. {escaped(heading)}</h2>{table}</section>\n"
    return web_page("Alignments", ("alignment_page.css",), body)
