"""What the packaged model says of seven photos.

`python tests/test_golden_captions.py` writes the list anew, as after a change of the model.
"""

import json
from typing import Any

import pytest
from photo_samples import GOLDEN
from PIL import Image, ImageFilter, ImageOps
from samples import photo

import captioner
from captioner.data.shapes import generate_example
from captioner.model_folders import DEMO_PHOTO


def make_photos() -> dict[str, Image.Image]:
    """The demo photo, changed in four ways; coloured shapes; random colours."""
    with Image.open(DEMO_PHOTO) as file:
        cat = file.convert("RGB")
    return {
        "cat": cat,
        "cat, mirrored": ImageOps.mirror(cat),
        "cat, in greys": ImageOps.grayscale(cat).convert("RGB"),
        "cat, negative": ImageOps.invert(cat),
        "cat, blurred": cat.filter(ImageFilter.GaussianBlur(cat.width / 20)),
        "shapes": generate_example(0, seed=0).image,
        "random colours": photo(),
    }


def caption_photos() -> dict[str, dict[str, Any]]:
    """The caption of each photo, and its confidence."""
    photos = make_photos()
    captions = captioner.load().caption(list(photos.values()))
    return {
        name: {"caption": caption.text, "confidence": round(caption.confidence, 4)}
        for name, caption in zip(photos, captions, strict=True)
    }


def test_the_packaged_model_says_what_it_said() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for row in golden.values():
        row["confidence"] = pytest.approx(row["confidence"], abs=0.01)
    assert caption_photos() == golden


if __name__ == "__main__":
    text = json.dumps(caption_photos(), indent=1, ensure_ascii=False)
    GOLDEN.write_text(text + "\n", encoding="utf-8")
