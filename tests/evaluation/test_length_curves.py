from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.errors import UserError
from captioner.evaluation.length_curves import LINES, save_length_curves
from captioner.evaluation.translation_lengths import LengthBucket


def buckets(*scores: float, sentences: int = 20) -> list[LengthBucket]:
    return [
        LengthBucket(5 * place + 1, 5 * place + 5, sentences, bleu, 1.0)
        for place, bleu in enumerate(scores)
    ]


def test_the_picture_names_models_lengths_and_sentences(tmp_path: Path) -> None:
    path = tmp_path / "lengths.svg"
    save_length_curves(path, {"gnmt": buckets(30, 20), "bahdanau": buckets(31, 25)}, "validation")
    # Text is drawn as shapes in SVG, and what each says stands beside it.
    text = path.read_text(encoding="utf-8")
    for said in ("gnmt", "bahdanau", "1 to 5", "6 to 10", "(20)", "BLEU", "validation"):
        assert f"<!-- {said}" in text
    assert text.index("<!-- gnmt") < text.index("<!-- bahdanau")


def test_what_is_drawn_depends_on_the_scores(tmp_path: Path) -> None:
    drawn = []
    for number, last in enumerate((20, 25, 20)):
        path = tmp_path / f"{number}.png"
        save_length_curves(path, {"one": buckets(30, last), "other": buckets(10, 12)})
        with Image.open(path) as picture:
            drawn.append(np.asarray(picture))
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[0] != drawn[1]).any()


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write .*lengths\.gif: its name must end in"):
        save_length_curves(tmp_path / "lengths.gif", {"one": buckets(1)})
    for models, message in (
        ({}, "there are 0 models to draw, not 1 to 8"),
        ({str(n): buckets(1) for n in range(len(LINES) + 1)}, "there are 9 models"),
        ({"one": buckets(1, 2), "other": buckets(1)}, "not scored on the same"),
        (
            {"one": buckets(1), "other": buckets(1, sentences=21)},
            "not scored on the same",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            save_length_curves(tmp_path / "lengths.png", models)
    assert not list(tmp_path.iterdir())
