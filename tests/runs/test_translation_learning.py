"""Every translation model learns a toy language pair, numbers in words to digits."""

from pathlib import Path
from typing import Any

import pytest
import torch

from captioner.data.batches import encode_pairs
from captioner.data.parallel import number_pairs
from captioner.decoding.options import TranslationSearch
from captioner.runs.batches import TranslationBatches
from captioner.schema import from_mapping
from captioner.text.vocabulary import WordVocabulary
from captioner.training.config import TrainingConfig
from captioner.training.loop import train
from captioner.translate.model import TranslationLoss
from captioner.translate.translator import TranslationModelConfig, Translator

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
    "without attention": model("sequence_to_sequence", cell="gru"),
    "without attention, lstm": model("sequence_to_sequence", cell="lstm"),
    "bahdanau": model("bahdanau"),
    "dot": model("luong", score="dot"),
    "general": model("luong", score="general"),
    "concat": model("luong", score="concat"),
    "general, not fed": model("luong", score="general", input_feeding=False),
    "local, monotonic": model("luong", attention="local-m"),
    "local, predictive": model("luong", attention="local-p"),
    "gnmt": model("gnmt"),
    "transformer": model("transformer"),
    "transformer, post-norm": model("transformer", norm_first=False, final_norm=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_reads_numbers_it_never_saw(name: str, tmp_path: Path) -> None:
    pairs, unseen = PAIRS[:3000], PAIRS[3000:]
    source = WordVocabulary.learn((pair.source for pair in pairs), 1, "keep")
    target = WordVocabulary.learn((pair.target for pair in pairs), 1, "keep")
    torch.manual_seed(0)
    learner = MODELS[name].make(len(source), len(target))
    rise: dict[str, Any] = {"learning_rate": 0.006, "warmup_steps": 20}
    if name == "transformer, post-norm":  # It needs a longer warm-up.
        rise = {"learning_rate": 0.003, "warmup_steps": 100}
    config = TrainingConfig(epochs=20, schedule="cosine", clip_norm=1.0, **rise)
    batches = TranslationBatches(encode_pairs(pairs, source, target, 50)[0], 500)
    train(TranslationLoss(learner), batches, config, tmp_path)
    search = TranslationSearch(beam=2, maximum_length=12)
    translator = Translator(MODELS[name], learner.eval(), source, target, search=search)
    found = translator.translate([pair.source for pair in unseen])
    right = [each.text == pair.target for each, pair in zip(found, unseen, strict=True)]
    assert sum(right) / len(right) >= 0.99
