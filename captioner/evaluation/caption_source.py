"""Captions the photos of a source, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from captioner.errors import UserError
from captioner.outcomes import Failed
from captioner.progress import progress_bar

if TYPE_CHECKING:  # They bring torch, which scoring a file does not need.
    from PIL import Image

    from captioner.caption import Caption, Captioner
    from captioner.data.source import Source
    from captioner.decoding import SearchOptions


def caption_source(
    captioner: Captioner,
    source: Source,
    search: SearchOptions | None = None,
    batch_size: int = 50,
    left_out: dict[str, str] | None = None,
) -> Iterator[tuple[int, Image.Image, Caption]]:
    """Yield each photo's row, the photo and its best caption, in order.

    search: by default the captioner's own.
    left_out: receives unreadable photos, by name, each with the reason.
    Raises `UserError` for a batch size below 1, for an unreadable photo if `left_out` is None, and
    at the end if no photo could be read.
    """
    from captioner.background import workers_for  # These two bring torch.
    from captioner.caption.captioner import caption_photos

    options = (captioner.search if search is None else search).replace(n_best=1)
    captioned = 0
    workers = workers_for(captioner.device, len(source), batch_size)
    photos = source.named_photos()
    items = caption_photos(captioner, photos, options, batch_size, workers=workers)
    with progress_bar("captioning", len(source), "images") as progress:
        for row, item in enumerate(items):
            if not isinstance(item, Failed):
                captioned += 1
                yield row, item.photo, item.caption
            elif left_out is None:
                raise UserError(item.reason)
            else:
                left_out[item.name] = item.reason
            progress.update()
    if not captioned:
        raise UserError(f"not one of {len(source):,} photos could be read")
