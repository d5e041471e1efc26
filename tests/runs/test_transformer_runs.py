"""Runs of captioners whose decoder is a Transformer, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_samples import Config, log_of, merged
from samples import save_photo

import captioner
from captioner.caption import Captioner, TransformerDecoder
from captioner.caption.folder import describe
from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe, captioning_recipe
from captioner.runs.run import train_run

DECODER = {"kind": "transformer", "embedding_size": 8, "heads": 2, "inner_size": 8, "layers": 1}


def recipe_for(config: Config, **changes: Any) -> CaptioningRecipe:
    return captioning_recipe(merged({**config, "decoder": DECODER}, **changes), "recipe")


def model_of(run: Path) -> Captioner:
    model = captioner.load(run / "model")
    assert isinstance(model, Captioner)
    assert isinstance(model.decoder, TransformerDecoder)
    return model


def test_a_run_gives_a_model_that_captions_and_is_described(config: Config, tmp_path: Path) -> None:
    train_run(recipe_for(config, decoder={"standardise": True}), tmp_path / "run")
    model = model_of(tmp_path / "run")
    caption = model.caption(save_photo(tmp_path / "other.png", 9), minimum_length=2)
    assert caption.attention.shape == (len(caption.words), 4, 4)
    caption.overlay(tmp_path / "overlay.png")
    text = describe(model, tmp_path / "run" / "model")
    assert "\n  kind: transformer\n" in text
    assert "\n  heads: 2\n" in text


def test_a_self_critical_run_starts_from_a_soft_one_of_the_same_kind(
    config: Config, tmp_path: Path
) -> None:
    once = {"training": {"epochs": 1}}
    train_run(recipe_for(config, **once), tmp_path / "soft")
    start = {"start_from": str(tmp_path / "soft")}
    critical = {"self_critical": {"samples": 3, "maximum_length": 6}}
    train_run(recipe_for(config, **start, **once, objective=critical), tmp_path / "critical")
    assert log_of(tmp_path / "critical")[-1].keys() >= {"train_reward", "train_finished"}
    without = {name: value for name, value in config.items() if name != "decoder"}
    filled = captioning_recipe({**without, **start}, "recipe")
    assert filled.decoder == recipe_for(config).decoder
    lstm = captioning_recipe({**without, **start, "decoder": {"kind": "lstm"}}, "recipe")
    assert lstm.decoder.kind == "lstm"
    with pytest.raises(UserError, match="does not fit this decoder"):
        train_run(lstm, tmp_path / "other")
