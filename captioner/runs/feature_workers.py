"""Fills a recipe's feature stores before training."""

from __future__ import annotations

from pathlib import Path

import torch

from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_extraction import (
    seeded_encoder_of,
    sources_to_store,
    stored_features,
)
from captioner.training import Engine
from captioner.vision.feature_store import FeatureStore


def store_recipe_features(
    recipe: CaptioningRecipe, device: torch.device | str = "cpu"
) -> dict[str, FeatureStore]:
    """Fill the stores in the recipe's `features.folder` and open them.

    Under `torchrun` as one of several processes, as in training.
    Raises `UserError` as `sources_to_store` and `stored_features` do.
    """
    with Engine(device) as engine:
        return fill_stores(recipe, engine)


def fill_stores(recipe: CaptioningRecipe, engine: Engine) -> dict[str, FeatureStore]:
    """As `store_recipe_features`, as one of the processes of an engine."""
    with engine.fail_together():
        sources = sources_to_store(recipe)
        encoder = seeded_encoder_of(recipe).to(engine.device)
    with engine.abort_together():
        return stored_features(recipe, encoder, sources, Path(), engine)
