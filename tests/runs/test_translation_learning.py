"""Every translation model learns a toy language pair, numbers in words to digits; two, to copy."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from captioner.data.batches import encode_pairs
from captioner.data.parallel import SentencePair, number_pairs
from captioner.decoding import BeamSearch, Constraints, decode
from captioner.runs.batches import TranslationBatches
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary, WordVocabulary
from captioner.training import TrainingConfig, train
from captioner.translate import (
    BahdanauConfig,
    GNMTConfig,
    LuongConfig,
    SequenceToSequenceConfig,
    TransformerConfig,
    TranslationLoss,
    TranslationModelConfig,
    TranslationSearch,
    Translator,
)

PAIRS = number_pairs(3500, seed=1)
LEARNED, UNSEEN = PAIRS[:3000], PAIRS[3000:]


def without_attention(cell: str) -> TranslationModelConfig:
    sizes = {"embedding_size": 32, "hidden_size": 96, "layers": 1, "dropout": 0.0}
    return TranslationModelConfig(
        sequence_to_sequence=SequenceToSequenceConfig(cell=cell, **sizes)  # type: ignore[arg-type]
    )


def luong(**fields: object) -> TranslationModelConfig:
    sizes = {"embedding_size": 32, "hidden_size": 64, "layers": 1, "attention_size": 32}
    options = {"cell": "gru", "bidirectional": True, "window": 3, "dropout": 0.0}
    return TranslationModelConfig(luong=LuongConfig(**{**sizes, **options, **fields}))  # type: ignore[arg-type]


def transformer(**fields: bool) -> TranslationModelConfig:
    sizes = {"embedding_size": 48, "heads": 4, "inner_size": 96}
    layers = {"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    return TranslationModelConfig(transformer=TransformerConfig(**{**sizes, **layers, **fields}))  # type: ignore[arg-type]


MODELS = {
    "without attention": without_attention("gru"),
    "without attention, lstm": without_attention("lstm"),
    "bahdanau": TranslationModelConfig(
        bahdanau=BahdanauConfig(
            embedding_size=32, hidden_size=48, attention_size=32, output_size=32, dropout=0.0
        )
    ),
    "dot": luong(score="dot"),
    "general": luong(score="general"),
    "concat": luong(score="concat"),
    "general, not fed": luong(score="general", input_feeding=False),
    "local, monotonic": luong(attention="local-m"),
    "local, predictive": luong(attention="local-p"),
    "gnmt": TranslationModelConfig(
        gnmt=GNMTConfig(embedding_size=32, hidden_size=48, attention_size=32, layers=3, dropout=0.0)
    ),
    "transformer": transformer(),
    "transformer, post-norm": transformer(norm_first=False, final_norm=False),
}
RISES: dict[str, dict[str, Any]] = {
    "transformer, post-norm": {"learning_rate": 0.003, "warmup_steps": 100}
}
"""How the learning rate begins, where it is otherwise: post-norm needs a warm-up."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_reads_numbers_it_never_saw(name: str, tmp_path: Path) -> None:
    words = WordVocabulary.learn((pair.source for pair in LEARNED), 1, "keep")
    digits = WordVocabulary.learn((pair.target for pair in LEARNED), 1, "keep")
    rise = RISES.get(name, {"learning_rate": 0.006, "warmup_steps": 20})
    torch.manual_seed(0)
    model = MODELS[name].make(len(words), len(digits))
    train(
        TranslationLoss(model),
        TranslationBatches(encode_pairs(LEARNED, words, digits, 50).examples, tokens=500),
        TrainingConfig(epochs=20, schedule="cosine", clip_norm=1.0, **rise),
        tmp_path,
    )
    model.eval()
    memory = model.remember(
        *collate_sources([words.indices(words.split(pair.source)) for pair in UNSEEN])
    )
    found = decode(
        model,
        memory,
        start=Vocabulary.start,
        end=Vocabulary.end,
        strategy=BeamSearch(2),
        constraints=Constraints(maximum_length=12, forbidden=(0, 1, 3)),
    )
    right = 0
    for hypotheses, pair in zip(found, UNSEEN, strict=True):
        right += digits.join(digits.tokens(hypotheses[0].tokens)) == pair.target
    assert right / len(UNSEEN) >= 0.99


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
@pytest.mark.parametrize(("name", "learning_rate"), [("bahdanau", 0.003), ("general", 0.006)])
def test_names_it_never_saw_are_copied_to_their_places(
    name: str, learning_rate: float, tmp_path: Path
) -> None:
    learned, unseen = lists(1200, 1), lists(100, 2)
    source = WordVocabulary.learn((pair.source for pair in learned), 2, "keep")
    target = WordVocabulary.learn((pair.target for pair in learned), 2, "keep")
    assert len(source) == len(target) == len(SPECIAL_WORDS) + 5  # No names.
    torch.manual_seed(0)
    config = MODELS[name]
    model = config.make(len(source), len(target))
    train(
        TranslationLoss(model),
        TranslationBatches(encode_pairs(learned, source, target, 50).examples, tokens=200),
        TrainingConfig(
            epochs=16,
            schedule="cosine",
            clip_norm=1.0,
            learning_rate=learning_rate,
            warmup_steps=20,
        ),
        tmp_path,
    )
    search = TranslationSearch(beam=2, maximum_length=20, copy_unknown=True)
    translator = Translator(config, model.eval(), source, target, search=search)
    found = translator.translate([pair.source for pair in unseen])
    right = [each.text == pair.target for each, pair in zip(found, unseen, strict=True)]
    assert sum(right) / len(right) >= 0.9
