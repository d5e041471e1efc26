"""A caption as an animated GIF: one frame a word, with its attention map."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from captioner.files import write_bytes
from captioner.render.attention_checks import check_attention
from captioner.render.overlay import overlay
from captioner.render.region import Region, fit
from captioner.render.save import check_suffix
from captioner.render.typography import BACKGROUND, DOUBT_INK, INK, PALE_INK, Paragraph, lay_out
from captioner.vision.drawn import DRAWN_MARK

HIGHLIGHT = (255, 200, 87)

MARGIN = 16
CAPTION_SIZE = 22
DOUBT_SIZE = 16
NARROWEST_CAPTION = 320

_SAMPLE_SIDE = 128
"""Longer side, in pixels, of the thumbnails that the palette is computed from."""

_DITHER_STEP = 7.0
"""Amplitude of the dither pattern added before rounding to the palette, of 256 levels."""


def frames(
    photo: Image.Image,
    words: Sequence[str],
    attention: npt.ArrayLike,
    region: Region,
    strength: float = 0.8,
    longest_side: int = 480,
    doubt: str = "",
) -> list[Image.Image]:
    """Draw one RGB frame a word: the overlay, and the caption with that word highlighted.

    The T frames have the same size. Arguments and errors are those of `encode_gif`.
    """
    maps = check_attention(words, attention)
    drawn_photo, drawn_region = fit(photo, region, _longest_side(photo, longest_side))
    pictures = [overlay(drawn_photo, weights, drawn_region, strength) for weights in maps]
    width = _frame_width(pictures[0])
    caption = lay_out(words, CAPTION_SIZE, width - 2 * MARGIN, centred=True)
    note = lay_out(doubt.split(), DOUBT_SIZE, width - 2 * MARGIN, centred=True) if doubt else None
    return [_frame(picture, caption, note, current) for current, picture in enumerate(pictures)]


def encode_gif(
    photo: Image.Image,
    words: Sequence[str],
    attention: npt.ArrayLike,
    region: Region,
    seconds_a_word: float = 0.8,
    strength: float = 0.8,
    longest_side: int = 480,
    doubt: str = "",
) -> bytes:
    """Encode an endless animated GIF with one frame a word.

    All frames share one palette of 256 colours and one dither pattern, so that static areas do not
    flicker.

    words: the T words of the caption.
    attention: (T, rows, columns), the map of each word.
    region: the part of the photo the maps cover.
    seconds_a_word: duration of a frame, rounded to 0.01 s; 0.02 to 600.
    strength: of the overlay, see `overlay`.
    longest_side: longer side of the photo, in pixels. That of a panorama is up to twice as long, so
        that its shorter side is a third of `longest_side`.
    doubt: a line below the caption, such as "not sure".

    Raises `ValueError` as `check_attention`, `check_region` and `overlay` do, and for a duration
    out of range.
    """
    if not 0.02 <= seconds_a_word <= 600:
        raise ValueError(f"{seconds_a_word} seconds a word is not between 0.02 and 600")
    drawn = frames(photo, words, attention, region, strength, longest_side, doubt)
    palette = _palette(drawn)
    size = fit(photo, region, _longest_side(photo, longest_side))[0].size
    coloured = [_to_palette(frame, palette, size) for frame in drawn]
    buffer = io.BytesIO()
    coloured[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=coloured[1:],
        duration=round(seconds_a_word * 100) * 10,  # milliseconds
        loop=0,  # endless
        optimize=False,
        comment=DRAWN_MARK,
        palette=palette.getpalette(),  # otherwise Pillow makes a palette for every frame
    )
    return buffer.getvalue()


def save_gif(path: str | os.PathLike[str], *drawing: Any, **options: Any) -> None:
    """Write `encode_gif` of the other arguments to a file.

    Raises `ValueError` as `encode_gif` does, and `UserError` unless the path ends in .gif, and if
    the file cannot be written.
    """
    check_suffix(path, (".gif",))
    write_bytes(path, encode_gif(*drawing, **options))


def _longest_side(photo: Image.Image, longest_side: int) -> int:
    """The longer side of a photo in a frame, in pixels."""
    of_panorama = round(longest_side / 3 * max(photo.size) / min(photo.size))
    return max(longest_side, min(of_panorama, 2 * longest_side))


def _frame_width(picture: Image.Image) -> int:
    return max(picture.width, NARROWEST_CAPTION)


def _frame(
    picture: Image.Image, caption: Paragraph, note: Paragraph | None, current: int
) -> Image.Image:
    width = _frame_width(picture)
    height = picture.height + caption.height + (note.height if note else 0) + 2 * MARGIN
    canvas = Image.new("RGB", (width, height), BACKGROUND)
    canvas.paste(picture, ((width - picture.width) // 2, 0))
    pen = ImageDraw.Draw(canvas)
    top = picture.height + MARGIN
    for position, word in enumerate(caption.words):
        left, line_top = MARGIN + word.left, top + word.top
        if position == current:
            box = (left - 4, line_top, left + word.width + 4, line_top + caption.line_height - 2)
            pen.rounded_rectangle(box, radius=5, fill=HIGHLIGHT)
        pen.text(
            (left, line_top + CAPTION_SIZE),
            word.text,
            fill=INK if position <= current else PALE_INK,
            font=caption.font,
            anchor="ls",
        )
    if note:
        note.write(pen, MARGIN, top + caption.height, DOUBT_INK)
    return canvas


def _to_palette(frame: Image.Image, palette: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Convert an RGB frame to a palette; only the photo of this width and height is dithered."""
    width, height = size
    left = (frame.width - width) // 2
    values = np.array(frame, dtype=np.float32)  # (frame's height, frame's width, 3)
    values[:height, left : left + width] += _dither_pattern(width, height)[..., None]
    rounded = Image.fromarray(values.clip(0, 255).astype(np.uint8))
    return rounded.quantize(palette=palette, dither=Image.Dither.NONE)


def _palette(drawn: list[Image.Image]) -> Image.Image:
    """Choose 256 colours for all frames together."""
    samples = [frame.copy() for frame in drawn]
    for sample in samples:
        sample.thumbnail((_SAMPLE_SIDE, _SAMPLE_SIDE), Image.Resampling.NEAREST)
    width, height = samples[0].size
    columns = math.ceil(math.sqrt(len(samples)))
    sheet = Image.new("RGB", (columns * width, math.ceil(len(samples) / columns) * height))
    for position, sample in enumerate(samples):
        row, column = divmod(position, columns)
        sheet.paste(sample, (column * width, row * height))
    return sheet.quantize(colors=256, method=Image.Quantize.MEDIANCUT)


def _dither_pattern(width: int, height: int) -> npt.NDArray[np.float32]:
    """Bayer's 8x8 ordered dither matrix, centred at 0 and tiled to (height, width)."""
    matrix = np.zeros((1, 1))
    for _ in range(3):
        matrix = np.block([[4 * matrix, 4 * matrix + 2], [4 * matrix + 3, 4 * matrix + 1]])
    centred = ((matrix + 0.5) / matrix.size - 0.5) * _DITHER_STEP  # (8, 8)
    repeated = np.tile(centred, (height // 8 + 1, width // 8 + 1))
    return repeated[:height, :width].astype(np.float32)
