"""Runs of captioners whose decoder is a Transformer, small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from run_samples import SMALL, make_table
from safetensors.torch import load_file
from samples import save_photo

import captioner
from captioner.caption import Captioner, TransformerDecoder
from captioner.caption.description import describe
from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe, captioning_recipe
from captioner.runs.train_run import train_run

DECODER = {"kind": "transformer", "embedding_size": 8, "heads": 2, "inner_size": 8, "layers": 1}
CRITICAL = {"self_critical": {"samples": 3, "maximum_length": 6}}


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    """Eight photos with two captions each, six to train on."""
    return make_table(tmp_path)


def recipe_for(data: dict[str, str], **changes: Any) -> CaptioningRecipe:
    mapping = {"data": data, **SMALL, "decoder": DECODER}
    for section, fields in changes.items():
        known = mapping.get(section)
        mapping[section] = {**known, **fields} if isinstance(known, dict) else fields
    return captioning_recipe(mapping, "recipe")


def model_of(run: Path) -> Captioner:
    model = captioner.load(run / "model")
    assert isinstance(model, Captioner)
    assert isinstance(model.decoder, TransformerDecoder)
    return model


def test_a_run_gives_a_model_that_captions_and_is_described(
    data: dict[str, str], tmp_path: Path
) -> None:
    train_run(recipe_for(data, decoder={"standardise": True}), tmp_path / "run")
    model = model_of(tmp_path / "run")
    caption = model.caption(save_photo(tmp_path / "other.png", 9), minimum_length=2)
    assert caption.attention.shape == (len(caption.words), 4, 4)
    caption.overlay(tmp_path / "overlay.png")
    text = describe(model, tmp_path / "run" / "model")
    assert "\n  kind: transformer\n" in text
    assert "\n  heads: 2\n" in text


def test_an_encoder_is_trained_along(data: dict[str, str], tmp_path: Path) -> None:
    first = []
    for train in (True, False):
        run = tmp_path / str(train)
        train_run(recipe_for(data, encoder={"train": train}, training={"epochs": 1}), run)
        first.append(next(model_of(run).encoder.parameters()))
    assert not torch.allclose(*first, atol=1e-3)


def test_a_self_critical_run_starts_from_a_soft_one_and_can_be_resumed(
    data: dict[str, str], tmp_path: Path
) -> None:
    """In a run split in two every draw is what it would have been."""
    train_run(recipe_for(data, training={"epochs": 1}), tmp_path / "soft")
    start = {"start_from": str(tmp_path / "soft"), "objective": CRITICAL}
    whole, split = tmp_path / "whole", tmp_path / "split"
    train_run(recipe_for(data, **start), whole)
    train_run(recipe_for(data, **start, training={"epochs": 1}), split)
    train_run(recipe_for(data, **start), split, resume=True)
    first, second = (load_file(run / "last.safetensors") for run in (whole, split))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    record = json.loads((whole / "log.jsonl").read_text().splitlines()[-1])
    assert {"train_reward", "train_length", "train_finished"} <= record.keys()


def test_a_start_is_of_the_same_kind(data: dict[str, str], tmp_path: Path) -> None:
    train_run(recipe_for(data, training={"epochs": 1}), tmp_path / "soft")
    start = str(tmp_path / "soft")
    mapping = {"data": data, "start_from": start, "minimum_count": 1}
    assert captioning_recipe(mapping, "recipe").decoder == recipe_for(data).decoder
    other = captioning_recipe({**mapping, "decoder": {"kind": "lstm"}}, "recipe")
    assert other.decoder.kind == "lstm"
    with pytest.raises(UserError, match="does not fit this decoder"):
        train_run(other, tmp_path / "other")
