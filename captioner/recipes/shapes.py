"""How a captioner does on generated shapes, where every caption and every box is known."""

from __future__ import annotations

from dataclasses import dataclass

from captioner.caption import Captioner
from captioner.data.grounding import Target
from captioner.data.shapes import ShapesConfig, ShapesExample, generate
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.evaluation.grounded_maps import grounded_maps, word_maps

UNSEEN_SEED = 1_000_003
"""The pictures of this seed are in no training set, as long as no config names it."""


@dataclass(frozen=True)
class ShapesScores:
    """Figures over generated pictures.

    pictures: how many. exact: share whose caption is exactly the right one.
    mass_inside: mean attention mass inside the box of the thing a word names, over the `words`
        colour and shape words of the exactly right captions. box_share: the mean share of the
        picture these boxes take: what even attention would have inside. Both are None where no
        caption is right, for then no map has a known box.
    """

    pictures: int
    exact: float
    mass_inside: float | None
    box_share: float | None
    words: int

    def as_dict(self) -> dict[str, float | None]:
        """The figures by name."""
        return vars(self).copy()

    def table(self) -> str:
        """The figures as lines of text."""
        return "\n".join(
            (
                f"{'pictures':<16}{self.pictures:,}",
                f"{'exact match':<16}{self.exact:.4f}",
                f"{'mass inside':<16}{_show(self.mass_inside)} (over {self.words:,} words)",
                f"{'box share':<16}{_show(self.box_share)}",
            )
        )


def score_shapes(
    captioner: Captioner,
    count: int = 500,
    seed: int = UNSEEN_SEED,
    pictures: ShapesConfig | None = None,
    search: SearchOptions | None = None,
    batch_size: int = 50,
) -> ShapesScores:
    """Caption `count` pictures of a seed and look where the maps of the right captions lie.

    pictures: what they are like; by default as `ShapesConfig` has them, in the size the model
        sees. Raises `UserError` for a count below 1, and as `generate` does.
    """
    examples = unseen_shapes(captioner, count, seed, pictures)
    captions = captioner.caption([example.image for example in examples], search, batch_size)
    right = 0
    words = []
    for number, (example, caption) in enumerate(zip(examples, captions, strict=True)):
        if caption.words != example.words:
            continue
        right += 1
        size = example.image.size
        targets = [box and Target(size, (box,)) for box in example.boxes]
        words += word_maps(number, caption.words, caption.attention, targets, size, caption.region)
    found = grounded_maps(words)
    return ShapesScores(
        pictures=count,
        exact=right / count,
        mass_inside=None if found.mass is None else found.mass.attention,
        box_share=None if found.mass is None else found.mass.uniform,
        words=found.words,
    )


def unseen_shapes(
    captioner: Captioner,
    count: int = 500,
    seed: int = UNSEEN_SEED,
    pictures: ShapesConfig | None = None,
) -> list[ShapesExample]:
    """The first `count` pictures of a seed, in the size that the model sees.

    Raises `UserError` as `score_shapes` does.
    """
    if count < 1:
        raise UserError(f"shapes count {count} is not at least 1")
    return generate(count, seed, pictures or ShapesConfig(image_size=captioner.preprocessing.size))


def _show(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.4f}"
