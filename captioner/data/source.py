"""The photos of one split with their captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from PIL import Image

from captioner.data.records import ImageId


@dataclass(frozen=True)
class Source:
    """N photos with their captions.

    captions: of each photo, as text. words: the same, tokenised.
    open_photo: loads the photo of a row.
    report: the problems of the records; empty if none. note: how the photos were chosen; likewise.
    """

    image_ids: Sequence[ImageId]
    captions: list[list[str]]
    words: list[list[list[str]]]
    open_photo: Callable[[int], Image.Image]
    report: str = ""
    note: str = ""

    def __len__(self) -> int:
        return len(self.image_ids)

    @property
    def names(self) -> list[str]:
        """The N `image_ids` as text, as in a feature store."""
        return [str(image_id) for image_id in self.image_ids]

    def named_photos(self) -> list[tuple[str, Callable[[], Image.Image]]]:
        """Each photo's name and the function that loads it."""
        return [(name, partial(self.open_photo, row)) for row, name in enumerate(self.names)]

    def take(self, rows: Sequence[int]) -> Source:
        """The photos of the given rows, in that order."""
        return replace(
            self,
            image_ids=[self.image_ids[row] for row in rows],
            captions=[self.captions[row] for row in rows],
            words=[self.words[row] for row in rows],
            open_photo=lambda row: self.open_photo(rows[row]),
        )

    def first(self, count: int) -> Source:
        """The first `count` photos; all for 0."""
        return self.take(range(min(count or len(self), len(self))))
