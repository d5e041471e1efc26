"""Models learn: a captioner what is in pictures, translators numbers in words to digits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from run_samples import Config

import captioner
from captioner.backends.torch_translations import TorchTranslations, make_model
from captioner.data.parallel import number_pairs
from captioner.data.shapes import (
    UNSEEN_SEED,
    ShapesConfig,
    generate,
    shapes_examples,
    shapes_grounding,
)
from captioner.decoding.options import TranslationSearch
from captioner.evaluation.maps import score_maps
from captioner.evaluation.score import score_model
from captioner.models.translation_config import TranslationModelConfig
from captioner.models.translation_model import TranslationLoss
from captioner.runs.batches import TranslationBatches, encode_pairs
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.run import train_run
from captioner.schema import from_mapping, to_mapping
from captioner.text import WordVocabulary
from captioner.training.config import TrainingConfig
from captioner.training.loop import Trainer
from captioner.training.optimizer import make_optimizer
from captioner.translate.translator import Translator

pytestmark = pytest.mark.slow

PICTURES = ShapesConfig(image_size=64, objects=(1, 2), object_size=(0.25, 0.4))
LSTM = {"embedding_size": 32, "hidden_size": 64, "attention_size": 32, "dropout": 0.0}
TRANSFORMER = {"kind": "transformer", "layers": 2, "dropout": 0.0}
TRANSFORMER |= {"embedding_size": 64, "heads": 4, "inner_size": 128}


@pytest.mark.parametrize(
    ("decoder", "learning_rate", "exact", "mass_inside"),
    [(LSTM, 0.002, 0.8, 2.0), (TRANSFORMER, 0.001, 0.9, 1.6)],
    ids=["lstm", "transformer"],
)
def test_it_says_what_is_there_and_looks_at_it(
    tmp_path: Path, decoder: Config, learning_rate: float, exact: float, mass_inside: float
) -> None:
    """The maps of a Transformer, means of heads, lie less on what a word names than the LSTM's."""
    shapes = {"train": 2400, "validation": 100, "pictures": to_mapping(PICTURES)}
    schedule = {"schedule": "cosine", "warmup_steps": 20, "patience": 0}
    mapping = {
        "data": {"format": "shapes", "shapes": shapes},
        "minimum_count": 1,
        "preprocessing": {"size": 64, "resize": "squash"},
        "encoder": {"name": "vgg11_bn", "width": 0.25, "weights": "random", "train": True},
        "decoder": decoder,
        "objective": {"doubly_stochastic": 0.0},
        "training": {**schedule, "epochs": 8, "batch_size": 32, "learning_rate": learning_rate},
        "search": {"beam": 2, "maximum_length": 12},
        "validation": {"score": "exact match", "batch_size": 100},
    }
    recipe = from_mapping(CaptioningRecipe, mapping, "test")
    model = captioner.load(train_run(recipe, tmp_path))
    pictures = generate(200, UNSEEN_SEED, PICTURES)
    examples = shapes_examples(pictures)
    names = [each.image_id for each in examples]
    grounding = shapes_grounding(dict(zip(names, pictures, strict=True)))
    scores = score_maps(model, examples, grounding=grounding)
    assert score_model(model, examples, exact=True).details["exact match"] >= exact
    found = scores.grounded
    mass, pointing = found["mass_inside"], found["pointing_game"]
    assert found["words"] > 400
    assert mass["attention"] > mass_inside * mass["uniform"]
    assert mass["attention"] > 1.2 * mass["centre"]
    if decoder is LSTM:
        assert mass["attention"] > 2 * mass["centre"]
        assert pointing["attention"] > 2 * pointing["centre"]
    assert scores.spread["moving"]
    # Shown grey pictures it cannot be right: the score comes from looking.
    captions = model.caption_annotations(model.backend.encoder.encode(torch.zeros(50, 3, 64, 64)))
    unseen = generate(50, 7, PICTURES)
    assert sum(c.words == e.words for c, e in zip(captions, unseen, strict=True)) <= 15


PAIRS = number_pairs(3500, seed=1)

SIZES: dict[str, dict[str, Any]] = {
    "sequence_to_sequence": {"embedding_size": 32, "hidden_size": 96, "layers": 1},
    "bahdanau": {"embedding_size": 32, "hidden_size": 48, "attention_size": 32, "output_size": 32},
    "luong": {
        **{"embedding_size": 32, "hidden_size": 64, "layers": 1, "attention_size": 32},
        **{"cell": "gru", "bidirectional": True, "window": 3},
    },
    "gnmt": {"embedding_size": 32, "hidden_size": 48, "attention_size": 32, "layers": 3},
    "transformer": {
        **{"embedding_size": 48, "heads": 4, "inner_size": 96},
        **{"encoder_layers": 2, "decoder_layers": 2},
    },
}


def model(family: str, **fields: Any) -> TranslationModelConfig:
    mapping = {family: {"dropout": 0.0, **SIZES[family], **fields}}
    return from_mapping(TranslationModelConfig, mapping, family)


MODELS = {
    "without attention": model("sequence_to_sequence", cell="lstm"),
    "bahdanau": model("bahdanau"),
    "dot": model("luong", score="dot"),
    "general, not fed": model("luong", score="general", input_feeding=False),
    "concat": model("luong", score="concat"),
    "local, monotonic": model("luong", attention="local-m"),
    "local, predictive": model("luong", attention="local-p"),
    "gnmt": model("gnmt"),
    "transformer": model("transformer"),
    "transformer, post-norm": model("transformer", norm_first=False, final_norm=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_reads_numbers_it_never_saw(name: str, tmp_path: Path) -> None:
    pairs, unseen = PAIRS[:3000], PAIRS[3000:]
    source = WordVocabulary.learn((pair.source for pair in pairs), 1, "keep")
    target = WordVocabulary.learn((pair.target for pair in pairs), 1, "keep")
    torch.manual_seed(0)
    learner = make_model(MODELS[name], len(source), len(target))
    rise: dict[str, Any] = {"learning_rate": 0.006, "warmup_steps": 20}
    if name == "transformer, post-norm":  # It needs a longer warm-up.
        rise = {"learning_rate": 0.003, "warmup_steps": 100}
    config = TrainingConfig(epochs=20, schedule="cosine", clip_norm=1.0, **rise)
    batches = TranslationBatches(encode_pairs(pairs, source, target, 50)[0], 500)
    loss = TranslationLoss(learner)
    Trainer(loss, batches, config, tmp_path, make_optimizer(loss, config)).train()
    search = TranslationSearch(beam=2, maximum_length=12)
    networks = TorchTranslations(MODELS[name], learner.eval(), source, target)
    translator = Translator(networks, search=search)
    found = translator.translate([pair.source for pair in unseen])
    right = [each.text == pair.target for each, pair in zip(found, unseen, strict=True)]
    assert sum(right) / len(right) >= 0.99
