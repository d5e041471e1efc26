"""Where the things are that captions of generated shapes name, right captions or wrong ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from captioner.data.grounding import Target
from captioner.data.records import ImageId
from captioner.data.shapes import COLOURS, SHAPES, ShapesExample

_SIZES = ("small", "large")


class ShapesGrounding:
    """The objects of generated pictures; a `Grounding`.

    examples: the pictures, by what the images are called.
    """

    def __init__(self, examples: Mapping[ImageId, ShapesExample]) -> None:
        self._targets = {
            image_id: {
                (item.colour, item.shape): Target(example.image.size, (item.box,))
                for item in example.objects
            }
            for image_id, example in examples.items()
        }

    def __contains__(self, image_id: ImageId) -> bool:
        """Whether an image is among the examples."""
        return image_id in self._targets

    def __str__(self) -> str:
        return f"the {len(self._targets):,} generated pictures"

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """The boxes of the things that the words of a caption name.

        A colour with a shape after it, and the size before it if there is one, name the object of
        that colour and shape: no picture has two. All of these words have its box, so that the
        right parts of a wrong caption can be scored. None for what is not in the picture, for
        words that stand otherwise ("red above"), and for all words of a picture that is not
        among the examples. A size that is wrong does not make it another object.
        """
        found: list[Target | None] = [None] * len(words)
        objects = self._targets.get(image_id, {})
        for place in range(len(words) - 1):
            colour, shape = words[place], words[place + 1]
            if colour in COLOURS and shape in SHAPES:
                sized = place > 0 and words[place - 1] in _SIZES
                target = objects.get((colour, shape))
                for named in range(place - sized, place + 2):
                    found[named] = target
        return found
