"""Grounding of captions of generated shapes, right captions or wrong ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from captioner.data.grounding import Target
from captioner.data.records import ImageId
from captioner.data.shapes import COLOURS, SHAPES, ShapesExample


class ShapesGrounding:
    """The objects of generated pictures; a `Grounding`. examples: by image name."""

    def __init__(self, examples: Mapping[ImageId, ShapesExample]) -> None:
        self._targets = {
            image_id: {
                (item.colour, item.shape): Target(example.image.size, (item.box,))
                for item in example.objects
            }
            for image_id, example in examples.items()
        }

    def __contains__(self, image_id: ImageId) -> bool:
        return image_id in self._targets

    def __str__(self) -> str:
        return f"the {len(self._targets):,} generated pictures"

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """The boxes of the objects that the words of a caption name.

        A colour followed by a shape names the object of both: no picture has two. All other words
        get None.
        """
        targets: list[Target | None] = [None] * len(words)
        objects = self._targets.get(image_id, {})
        for place in range(len(words) - 1):
            colour, shape = words[place], words[place + 1]
            if colour in COLOURS and shape in SHAPES:
                targets[place] = targets[place + 1] = objects.get((colour, shape))
        return targets
