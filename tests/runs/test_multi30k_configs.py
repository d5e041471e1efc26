"""The configs of Multi30k: all models, both pairs, both directions."""

from __future__ import annotations

import re
from pathlib import Path

from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.translation_recipe import ParallelData, TranslationRecipe

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("multi30k_*.yaml"))


def pair_of(data: ParallelData) -> tuple[str, str]:
    """The two languages, which training and validation must have alike."""
    names = (data.source, data.target, data.validation_source, data.validation_target)
    found = [re.fullmatch(r"data/multi30k/(train|val)\.(en|de|fr)\.gz", str(n)) for n in names]
    assert all(found)
    parts, languages = zip(*((match[1], match[2]) for match in found if match), strict=True)
    assert parts == ("train", "train", "val", "val")
    assert languages[:2] == languages[2:]
    return languages[0], languages[1]


def read(path: Path, changes: list[str]) -> TranslationRecipe:
    recipe = read_any_recipe(path, changes)
    assert isinstance(recipe, TranslationRecipe)
    return recipe


def test_there_is_every_model_and_every_direction() -> None:
    recipes = {path.stem: read(path, []) for path in CONFIGS}
    transformers = [name for name, recipe in recipes.items() if recipe.model.transformer]
    assert {f"multi30k_{pair}" for pair in ("en_de", "de_en", "en_fr", "fr_en")} == {*transformers}
    layers = [r.model.transformer.alignment_layer for r in recipes.values() if r.model.transformer]
    assert layers == [-2] * 4
    english_german = [r.model for r in recipes.values() if pair_of(r.data) == ("en", "de")]
    for family in ("sequence_to_sequence", "bahdanau", "luong", "gnmt", "transformer"):
        assert any(getattr(model, family) for model in english_german), family
    for recipe in recipes.values():
        # German nouns have capitals: a sentence of nouns would be taken for a title.
        german = pair_of(recipe.data)[0] == "de"
        assert recipe.text.capitals == ("lines" if german else "titles")
    luong = [(model.luong.score, model.luong.attention) for model in english_german if model.luong]
    assert {"dot", "general", "concat"} == {score for score, kind in luong if kind == "global"}
    assert any(kind.startswith("local") for _, kind in luong)
