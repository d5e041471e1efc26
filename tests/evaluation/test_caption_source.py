"""Evaluation, training, the feature store and captioning see the same pixels of a photo."""

from __future__ import annotations

from pathlib import Path

import torch
from samples import make_captioner, save_photo
from torch import Tensor

from captioner.data.example import Example
from captioner.evaluation.scorer import caption_examples
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.features import PixelRows, example_stores
from captioner.schema import from_mapping
from captioner.vision.images import original_size


def test_a_large_photo_has_the_same_pixels_everywhere_and_few_are_kept(tmp_path: Path) -> None:
    path = save_photo(tmp_path / "large.jpg", size=(1600, 1203))
    captioner = make_captioner()
    assert captioner.preprocessing.sufficient_side * 2 < 1203  # Decoded to fewer pixels.
    seen: list[Tensor] = []
    hook = lambda _, arguments: seen.append(arguments[0].clone())  # noqa: E731
    captioner.encoder.register_forward_pre_hook(hook)
    example = Example("large", path)

    ((_, caption),) = caption_examples(captioner, [example])
    assert original_size(caption.photo) == (1600, 1203)
    assert caption.region == captioner.preprocessing.region(1600, 1203)
    assert caption.photo.width * caption.photo.height < 100  # A batch holds all of its photos.

    captioner.caption([path])
    rows = PixelRows([example], captioner.preprocessing, captioner.encoder)
    rows.encode(rows.read(torch.tensor([0])))
    mapping = {"preprocessing": dict(captioner.preprocessing), "data": {"format": "shapes"}}
    recipe = from_mapping(CaptioningRecipe, mapping, "recipe")
    store = example_stores(recipe, captioner.encoder, {"train": [example]}, tmp_path)["train"]
    store.fill(captioner.encoder)
    assert len(seen) == 4
    assert all(torch.equal(pixels, seen[0]) for pixels in seen)
