"""Every translation model learns a toy language pair, numbers in words to digits; two, to copy."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from captioner.data.batches import encode_pairs
from captioner.data.parallel import SentencePair, number_pairs
from captioner.decoding.options import TranslationSearch
from captioner.runs.batches import TranslationBatches
from captioner.schema import from_mapping
from captioner.text.vocabulary import SPECIAL_WORDS, WordVocabulary
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


def learn(
    name: str,
    pairs: Sequence[SentencePair],
    folder: Path,
    count: int,
    batch_tokens: int,
    search: TranslationSearch,
    **settings: Any,
) -> Translator:
    """A trained translator of the words seen `count` times or more."""
    source = WordVocabulary.learn((pair.source for pair in pairs), count, "keep")
    target = WordVocabulary.learn((pair.target for pair in pairs), count, "keep")
    torch.manual_seed(0)
    learner = MODELS[name].make(len(source), len(target))
    options = {"schedule": "cosine", "clip_norm": 1.0, "warmup_steps": 20, **settings}
    batches = TranslationBatches(encode_pairs(pairs, source, target, 50)[0], batch_tokens)
    train(TranslationLoss(learner), batches, TrainingConfig(**options), folder)
    return Translator(MODELS[name], learner.eval(), source, target, search=search)


def share_right(translator: Translator, pairs: Sequence[SentencePair]) -> float:
    found = translator.translate([pair.source for pair in pairs])
    right = [each.text == pair.target for each, pair in zip(found, pairs, strict=True)]
    return sum(right) / len(right)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_reads_numbers_it_never_saw(name: str, tmp_path: Path) -> None:
    rise: dict[str, Any] = {"learning_rate": 0.006}
    if name == "transformer, post-norm":  # It needs a longer warm-up.
        rise = {"learning_rate": 0.003, "warmup_steps": 100}
    search = TranslationSearch(beam=2, maximum_length=12)
    translator = learn(name, PAIRS[:3000], tmp_path, 1, 500, search, epochs=20, **rise)
    assert share_right(translator, PAIRS[3000:]) >= 0.99


def lists(count: int, seed: int) -> list[SentencePair]:
    """Who is there, last first in the other language: half nouns, half names that occur once."""
    nouns = {"man": "Mann", "dog": "Hund", "child": "Kind", "girl": "Mädchen", "boy": "Junge"}
    drawn = random.Random(seed)
    pairs = []
    for line in range(1, count + 1):
        there = [
            drawn.choice(list(nouns))
            if drawn.random() < 0.5
            else "".join(drawn.choices("aeioumnprst", k=9)).title()
            for _ in range(drawn.randint(2, 8))
        ]
        back = [nouns.get(word, word) for word in reversed(there)]
        pairs.append(SentencePair(" ".join(there), " ".join(back), line))
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "learning_rate", "count"), [("bahdanau", 0.003, 1200), ("general", 0.006, 3600)]
)
def test_names_it_never_saw_are_copied_to_their_places(
    name: str, learning_rate: float, count: int, tmp_path: Path
) -> None:
    settings = {"epochs": 16, "learning_rate": learning_rate}
    search = TranslationSearch(beam=2, maximum_length=20, copy_unknown=True)
    translator = learn(name, lists(count, 1), tmp_path, 2, 200, search, **settings)
    assert len(translator.source) == len(translator.target) == len(SPECIAL_WORDS) + 5  # No names.
    assert share_right(translator, lists(100, 2)) >= 0.9
