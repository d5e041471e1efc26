import itertools
import re

import numpy as np
import pytest
from PIL import Image

from captioner.data import shapes
from captioner.data.shapes import COLOURS, GAP, MARGIN, SHAPES, ShapesConfig, generate

THREE = ShapesConfig(objects=(3, 3), object_size=(0.2, 0.3))


def colour_named(rgb: np.ndarray) -> str:
    """The nearest of the colours, as one would name it by eye."""
    return min(COLOURS, key=lambda name: float(np.abs(rgb - np.array(COLOURS[name])).sum()))


def test_an_example_depends_on_its_seed_and_index_only() -> None:
    long = generate(6, seed=5)
    assert generate(3, seed=5) == long[:3]
    assert shapes.generate_example(4, seed=5) == long[4]


@pytest.mark.parametrize("config", [ShapesConfig(image_size=64), THREE])
def test_boxes_hold_the_named_colour_and_nothing_lies_outside(config: ShapesConfig) -> None:
    for example in generate(25, seed=2, config=config):
        image = np.asarray(example.image).astype(int)
        assert example.image.mode == "RGB"
        assert image.shape == (config.image_size, config.image_size, 3)
        # Shapes differ from the pale ground by a dark channel, or for yellow by its blue one.
        drawn = image.min(axis=2) < 190
        covered = np.zeros_like(drawn)
        for item in example.objects:
            left, top, right, bottom = item.box
            inside = np.zeros_like(drawn)
            inside[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
            rows, columns = np.nonzero(drawn & inside)
            # The box is tight: shapes reach to within two pixels of each of its edges.
            assert left - 1 <= columns.min() < left + 2.5
            assert right - 2.5 < columns.max() + 1 <= right + 1
            assert top - 1 <= rows.min() < top + 2.5
            assert bottom - 2.5 < rows.max() + 1 <= bottom + 1
            assert colour_named(np.median(image[drawn & inside], axis=0)) == item.colour
            covered |= inside
        assert not (drawn & ~covered).any()


def test_captions_say_what_the_boxes_show() -> None:
    config = ShapesConfig(objects=(1, 3), object_size=(0.2, 0.3))
    seen: set[str] = set()
    for example in generate(200, seed=7, config=config):
        phrases = re.split(r" (above|below|left of|right of) ", example.caption)
        names = [f"a {item.colour} {item.shape}" for item in example.objects]
        assert phrases[::2] == names
        order = [f"a {colour} {shape}" for colour in COLOURS for shape in SHAPES]
        assert names == [name for name in order if name in names]
        for index, relation in enumerate(phrases[1::2]):
            one, other = example.objects[index].box, example.objects[index + 1].box
            across = (other[0] + other[2]) / 2 - (one[0] + one[2]) / 2
            down = (other[1] + other[3]) / 2 - (one[1] + one[3]) / 2
            expected = {
                "left of": across > abs(down),
                "right of": -across > abs(down),
                "above": down > abs(across),
                "below": -down > abs(across),
            }
            assert [name for name, holds in expected.items() if holds] == [relation]
            assert abs(abs(across) - abs(down)) >= MARGIN * config.image_size
        of_objects = [box for item in example.objects for box in (item.box, item.box)]
        assert [box for box in example.boxes_of(example.words) if box] == of_objects
        for item, other in itertools.combinations(example.objects, 2):
            (left, top, right, bottom), box = item.box, other.box
            gaps = (box[0] - right, left - box[2], box[1] - bottom, top - box[3])
            assert max(gaps) >= GAP * config.image_size
        seen.update(example.words)
    assert seen == {*COLOURS, *SHAPES, "a", "above", "below", "left", "right", "of"}


CIRCLE = shapes.ShapesObject("red", "circle", (2.0, 3.0, 12.0, 13.0))
SQUARE = shapes.ShapesObject("blue", "square", (20.0, 30.0, 50.0, 60.0))
PICTURE = shapes.ShapesExample(Image.new("RGB", (64, 64)), (CIRCLE, SQUARE))
GROUNDING = shapes.shapes_grounding({"x": PICTURE})


def test_captions_have_the_boxes_of_what_is_there() -> None:
    for caption, expected in (
        ("a red circle", [None, CIRCLE.box, CIRCLE.box]),
        ("a green star left of a blue square", [*[None] * 6, SQUARE.box, SQUARE.box]),
        ("red blue square", [None, SQUARE.box, SQUARE.box]),
    ):
        targets = GROUNDING.targets("x", caption.split())
        assert {target.size for target in targets if target is not None} == {(64, 64)}
        assert [target and target.boxes[0] for target in targets] == expected
    assert GROUNDING.source == "the 1 generated pictures"
    assert GROUNDING.targets("y", ["a", "red", "circle"]) == [None] * 3
