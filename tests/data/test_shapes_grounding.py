from __future__ import annotations

import pytest
from PIL import Image

from captioner.data.shapes import ShapesConfig, ShapesExample, ShapesObject, generate
from captioner.data.shapes_grounding import ShapesGrounding

CIRCLE = ShapesObject("red", "circle", (2.0, 3.0, 12.0, 13.0))
SQUARE = ShapesObject("blue", "square", (20.0, 30.0, 50.0, 60.0))


@pytest.fixture
def grounding() -> ShapesGrounding:
    picture = Image.new("RGB", (64, 64))
    return ShapesGrounding({"x": ShapesExample(picture, "", (), (), (CIRCLE, SQUARE))})


def boxes_of(grounding: ShapesGrounding, caption: str) -> list[object]:
    targets = grounding.targets("x", caption.split())
    assert all(target is None or target.size == (64, 64) for target in targets)
    return [target and target.boxes[0] for target in targets]


def test_right_captions_have_the_boxes_of_their_examples() -> None:
    examples = generate(12, 5, ShapesConfig(image_size=48, objects=(1, 3)))
    grounding = ShapesGrounding(dict(enumerate(examples)))
    for number, example in enumerate(examples):
        targets = grounding.targets(number, example.words)
        assert tuple(target and target.boxes[0] for target in targets) == example.boxes


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a red circle", [None, CIRCLE.box, CIRCLE.box]),
        ("a red square", [None] * 3),
        (
            "a green star left of a blue square",
            [*[None] * 6, SQUARE.box, SQUARE.box],
        ),
        ("a red above a circle", [None] * 5),
        ("red blue square", [None, SQUARE.box, SQUARE.box]),
        ("circle red", [None] * 2),
        ("red", [None]),
        ("", []),
    ],
)
def test_wrong_captions_have_the_boxes_of_what_is_there(
    grounding: ShapesGrounding, caption: str, expected: list[object]
) -> None:
    assert boxes_of(grounding, caption) == expected


def test_an_unknown_picture_has_no_targets(grounding: ShapesGrounding) -> None:
    assert "x" in grounding
    assert "y" not in grounding
    assert str(grounding) == "the 1 generated pictures"
    assert grounding.targets("y", ["a", "red", "circle"]) == [None] * 3
