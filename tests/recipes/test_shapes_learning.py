"""A captioner learns to say what is in a picture, and looks at what it says."""

from __future__ import annotations

import json

import pytest
import torch

import captioner
from captioner.caption import Captioner
from captioner.data.shapes import ShapesConfig, generate
from captioner.data.shapes_grounding import ShapesGrounding
from captioner.errors import UserError
from captioner.evaluation.map_scores import score_maps
from captioner.fields import from_mapping, to_mapping
from captioner.recipes.captioning import train_captioner
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.shapes import score_shapes, unseen_shapes
from captioner.recipes.sources import shapes_source

PICTURES = ShapesConfig(image_size=64, objects=(1, 2), object_size=(0.25, 0.4))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Captioner:
    """The published shapes recipe in small, trained for real."""
    mapping = {
        "data": {
            "format": "shapes",
            "shapes": {"train": 2400, "validation": 100, "pictures": to_mapping(PICTURES)},
        },
        "minimum_count": 1,
        "preprocessing": {"size": 64, "resize": "squash"},
        "encoder": {"name": "vgg11_bn", "width": 0.25, "weights": "random", "train": True},
        "decoder": {
            "embedding_size": 32,
            "hidden_size": 64,
            "attention_size": 32,
            "dropout": 0.0,
        },
        "objective": {"doubly_stochastic": 0.0},
        "training": {
            "epochs": 8,
            "batch_size": 32,
            "learning_rate": 0.002,
            "schedule": "cosine",
            "warmup_steps": 20,
            "patience": 0,
        },
        "search": {"beam": 2, "maximum_length": 12},
        "validation": {"score": "exact match", "batch_size": 100},
    }
    recipe = from_mapping(CaptioningRecipe, mapping, "test")
    folder = train_captioner(recipe, tmp_path_factory.mktemp("shapes"))
    return captioner.load(folder)


@pytest.mark.slow
def test_it_says_what_is_there(trained: Captioner) -> None:
    scores = score_shapes(trained, 200, pictures=PICTURES)
    assert scores.exact >= 0.8


@pytest.mark.slow
def test_it_looks_at_what_it_names(trained: Captioner) -> None:
    scores = score_shapes(trained, 200, pictures=PICTURES)
    assert scores.box_share is not None
    assert scores.mass_inside is not None
    assert scores.box_share < 0.25
    assert scores.mass_inside > 2 * scores.box_share


@pytest.mark.slow
def test_a_map_belongs_to_the_step_that_emits_its_word(trained: Captioner) -> None:
    """One word early or late, and a word's map would lie on something else."""
    examples = unseen_shapes(trained, 200, pictures=PICTURES)
    source = shapes_source(examples)
    grounding = ShapesGrounding(dict(zip(source.image_ids, examples, strict=True)))
    scores = score_maps(trained, source, grounding, exact=True)
    found = scores.grounded
    assert found is not None
    assert found.mass is not None
    assert found.pointing is not None
    assert found.words > 400
    assert found.mass.attention > 2 * found.mass.centre
    assert found.pointing.attention > 2 * found.pointing.centre
    for shift in (found.early, found.late):
        assert shift.words > 60
        assert shift.own is not None
        assert shift.shifted is not None
        assert shift.own > 1.5 * shift.shifted
    assert scores.exact == score_shapes(trained, 200, pictures=PICTURES).exact
    assert scores.spread.moving


@pytest.mark.slow
def test_pictures_are_not_told_apart_by_chance(trained: Captioner) -> None:
    """Shown grey pictures it cannot be right: the score comes from looking."""
    blind = Captioner(
        trained.encoder,
        trained.decoder,
        trained.vocabulary,
        trained.preprocessing,
        trained.search,
    )
    grey = torch.zeros(50, 3, 64, 64)
    with torch.no_grad():
        captions = blind.caption_annotations(blind.encoder(grey))
    examples = generate(50, 7, PICTURES)
    right = sum(c.words == e.words for c, e in zip(captions, examples, strict=True))
    assert right <= 15


def test_a_model_that_knows_no_shapes_scores_nothing(tiny_captioner: Captioner) -> None:
    scores = score_shapes(tiny_captioner, 5)
    assert (scores.exact, scores.words) == (0.0, 0)
    assert scores.mass_inside is None
    assert scores.box_share is None
    assert "exact match     0.0000\nmass inside     - (over 0 words)" in scores.table()
    assert json.loads(json.dumps(scores.as_dict()))["mass_inside"] is None


def test_no_pictures_have_no_score(tiny_captioner: Captioner) -> None:
    with pytest.raises(UserError, match="count 0 is not at least 1"):
        score_shapes(tiny_captioner, 0)


def test_scores_have_names(tiny_captioner: Captioner) -> None:
    scores = score_shapes(tiny_captioner, 5)
    assert scores.as_dict().keys() == {"pictures", "exact", "mass_inside", "box_share", "words"}
    assert f"{scores.exact:.4f}" in scores.table()
