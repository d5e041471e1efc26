"""Captions the photos of a data set, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from captioner.errors import UserError
from captioner.outcomes import Failed
from captioner.progress import progress_bar

if TYPE_CHECKING:  # They bring torch, which scoring a file does not need.
    from captioner.caption import Caption, Captioner
    from captioner.data.example import Example
    from captioner.decoding import SearchOptions


def caption_examples(
    captioner: Captioner,
    examples: Sequence[Example],
    search: SearchOptions | None = None,
    batch_size: int = 50,
    left_out: dict[str, str] | None = None,
) -> Iterator[tuple[int, Caption]]:
    """Yield each photo's row and its best caption, in order.

    The captions' photos have few pixels, since a batch holds all of them; `original_size` tells
    their size.

    search: by default the captioner's own.
    left_out: receives unreadable photos, by name, each with the reason.
    Raises `UserError` for a batch size below 1, for an unreadable photo if `left_out` is None, and
    at the end if no photo could be read.
    """
    from captioner.background import workers_for  # These two bring torch.
    from captioner.caption.captioner import caption_photos
    from captioner.vision.images import load_image

    options = (captioner.search if search is None else search).replace(n_best=1)
    captioned = 0
    workers = workers_for(captioner.device, len(examples), batch_size)
    side = captioner.preprocessing.sufficient_side
    photos = [
        (each.name, partial(load_image, each.path, sufficient_side=side)) for each in examples
    ]
    items = caption_photos(captioner, photos, options, batch_size, drawn_side=1, workers=workers)
    with progress_bar("captioning", len(examples), "images") as progress:
        for row, item in enumerate(items):
            if not isinstance(item, Failed):
                captioned += 1
                yield row, item.caption
            elif left_out is None:
                raise UserError(item.reason)
            else:
                left_out[item.name] = item.reason
            progress.update()
    if not captioned:
        raise UserError(f"not one of {len(examples):,} photos could be read")
