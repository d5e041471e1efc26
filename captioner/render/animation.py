"""A caption as an animated GIF: one frame a word, with its attention map."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from PIL import Image, ImageDraw

from captioner.files import write_bytes
from captioner.render.overlay import Region, check_maps, fit, overlay
from captioner.render.save import check_suffix
from captioner.render.typography import (
    BACKGROUND,
    DOUBT_INK,
    INK,
    LINE_HEIGHT,
    PALE_INK,
    Colour,
    Paragraph,
    font_for,
    lay_out,
    printable,
    shortened,
)

HIGHLIGHT = (255, 200, 87)
MARGIN = 16
CAPTION_SIZE, DOUBT_SIZE = 22, 16
NARROWEST_CAPTION, _LONGEST_SIDE = 320, 480
WORD_MILLISECONDS = 800


def frames(
    photo: Image.Image,
    words: Sequence[str],
    attention: npt.ArrayLike,
    region: Region,
    strength: float = 0.8,
    doubt: str = "",
    probabilities: Sequence[float | None] | None = None,
) -> list[Image.Image]:
    """Draw one RGB frame a word, all of one size: the overlay, and the caption with the word lit.

    Arguments are those of `panels`; a word's probability stands below the caption.
    """
    maps = check_maps(attention, words)
    # A panorama is up to twice as long, so that its shorter side is a third of the usual.
    of_panorama = round(_LONGEST_SIDE / 3 * max(photo.size) / min(photo.size))
    longest_side = max(_LONGEST_SIDE, min(of_panorama, 2 * _LONGEST_SIDE))
    drawn_photo, drawn_region = fit(photo, region, longest_side)
    width = max(drawn_photo.width, NARROWEST_CAPTION)
    caption = lay_out(words, CAPTION_SIZE, width - 2 * MARGIN, centred=True)
    drawn = []
    for current, weights in enumerate(maps):
        lines = [(doubt, DOUBT_INK)] if doubt else []
        if probabilities:
            share = probabilities[current]
            lines.append(("" if share is None else f"{words[current]}: {share:.0%}", PALE_INK))
        picture = overlay(drawn_photo, weights, drawn_region, strength)
        drawn.append(_frame(picture, width, caption, lines, current))
    return drawn


def encode_gif(*drawing: Any, **options: Any) -> bytes:
    """Encode `frames` as an endless GIF; all share 256 colours, so that nothing flickers."""
    drawn = frames(*drawing, **options)
    palette = _palette(drawn)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in drawn]
    buffer = io.BytesIO()
    first.save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=others,
        duration=WORD_MILLISECONDS,
        loop=0,  # endless
        optimize=False,
        palette=palette.getpalette(),  # otherwise Pillow makes a palette for every frame
    )
    return buffer.getvalue()


def save_gif(path: str | os.PathLike[str], *drawing: Any, **options: Any) -> None:
    """Write `encode_gif` to a file that ends in .gif."""
    check_suffix(path, (".gif",))
    write_bytes(path, encode_gif(*drawing, **options))


def _frame(
    picture: Image.Image,
    width: int,
    caption: Paragraph,
    lines: Sequence[tuple[str, Colour]],
    current: int,
) -> Image.Image:
    """A frame. lines: below the caption, each with its ink."""
    line_height = round(DOUBT_SIZE * LINE_HEIGHT)
    height = picture.height + caption.height + len(lines) * line_height + 2 * MARGIN
    canvas = Image.new("RGB", (width, height), BACKGROUND)
    canvas.paste(picture, ((width - picture.width) // 2, 0))
    pen = ImageDraw.Draw(canvas)
    top = picture.height + MARGIN
    for position, word in enumerate(caption.words):
        left, line_top = MARGIN + word.left, top + word.top
        if position == current:
            box = (left - 4, line_top, left + word.width + 4, line_top + caption.line_height - 2)
            pen.rounded_rectangle(box, radius=5, fill=HIGHLIGHT)
        ink = INK if position <= current else PALE_INK
        baseline = (left, line_top + CAPTION_SIZE)
        pen.text(baseline, word.text, fill=ink, font=caption.font, anchor="ls")
    top += caption.height
    for text, ink in lines:
        font = font_for(printable(text), DOUBT_SIZE)
        line = shortened(printable(text), font, width - 2 * MARGIN)
        pen.text((width / 2, top), line, fill=ink, font=font, anchor="ma")
        top += line_height
    return canvas


def _palette(drawn: list[Image.Image]) -> Image.Image:
    """Choose 256 colours for all frames together, by every fourth row and column."""
    width, height = (side // 4 for side in drawn[0].size)
    sheet = Image.new("RGB", (width, height * len(drawn)))
    for number, frame in enumerate(drawn):
        sample = frame.resize((width, height), Image.Resampling.NEAREST)
        sheet.paste(sample, (0, number * height))
    return sheet.quantize(256)
