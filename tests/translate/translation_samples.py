"""Small translation models of every kind, for the tests beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from captioner.text.vocabulary import WordVocabulary
from captioner.translate import (
    BahdanauConfig,
    GNMTConfig,
    LuongConfig,
    SequenceToSequenceConfig,
    TransformerConfig,
    TranslationModel,
    TranslationModelConfig,
    TranslationSearch,
    Translator,
)

SENTENCES = ["A man runs.", "", "The dog sees a man, and runs.", "Dogs run!", "   "]

SIZE = 11
"""Tokens on each side; the first four are special."""


def luong(**fields: object) -> TranslationModelConfig:
    sizes = {"embedding_size": 8, "hidden_size": 12, "attention_size": 10, "window": 2}
    return TranslationModelConfig(luong=LuongConfig(**{**sizes, "dropout": 0.0, **fields}))  # type: ignore[arg-type]


def transformer(**fields: object) -> TranslationModelConfig:
    sizes = {"embedding_size": 12, "heads": 3, "inner_size": 16}
    sizes |= {"encoder_layers": 2, "decoder_layers": 2}
    config = TransformerConfig(**{**sizes, "dropout": 0.0, **fields})  # type: ignore[arg-type]
    return TranslationModelConfig(transformer=config)


def sequence_to_sequence(cell: str) -> TranslationModelConfig:
    config = SequenceToSequenceConfig(
        cell=cell, embedding_size=8, hidden_size=12, layers=2, dropout=0.0
    )
    return TranslationModelConfig(sequence_to_sequence=config)


CONFIGS: dict[str, TranslationModelConfig] = {
    "gru": sequence_to_sequence("gru"),
    "lstm": sequence_to_sequence("lstm"),
    "bahdanau": TranslationModelConfig(
        bahdanau=BahdanauConfig(
            embedding_size=8, hidden_size=12, attention_size=10, output_size=6, dropout=0.0
        )
    ),
    "bahdanau, new state": TranslationModelConfig(
        bahdanau=BahdanauConfig(
            embedding_size=8,
            hidden_size=12,
            attention_size=10,
            output_size=8,
            output_state="new",
            tie_embeddings="all",
            dropout=0.0,
        )
    ),
    "dot": luong(score="dot"),
    "general": luong(score="general", bidirectional=True),
    "concat": luong(score="concat", cell="gru", layers=3),
    "dot, not fed": luong(score="dot", input_feeding=False, bidirectional=True),
    "general, not fed": luong(score="general", input_feeding=False),
    "concat, not fed": luong(score="concat", input_feeding=False, cell="gru"),
    "local-m": luong(attention="local-m"),
    "local-m, not fed": luong(attention="local-m", input_feeding=False),
    "local-p": luong(attention="local-p", embedding_size=12, tie_embeddings="target"),
    "local-p, not fed": luong(attention="local-p", input_feeding=False),
    "gnmt": TranslationModelConfig(
        gnmt=GNMTConfig(embedding_size=8, hidden_size=12, attention_size=10, layers=4, dropout=0.0)
    ),
    "transformer": transformer(),
    "transformer, post-norm": transformer(
        norm_first=False, final_norm=False, tie_embeddings="all", alignment_head=1
    ),
    "transformer, first layer": transformer(tie_embeddings="none", alignment_layer=0),
}


def make(name: str, source_size: int = SIZE, target_size: int = SIZE) -> TranslationModel:
    """The model, with weights far enough from zero for everything to matter."""
    torch.manual_seed(0)
    model = CONFIGS[name].make(source_size, target_size)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    return model.eval()


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(4, SIZE, shape, generator=torch.Generator().manual_seed(seed))


def ragged(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sources of these lengths (B, S), padded with 0, and their mask (B, S)."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return tokens(*mask.shape, seed=seed) * mask, mask


def make_translator(name: str = "general", joint: bool = False) -> Translator:
    source = WordVocabulary.learn(SENTENCES, 1)
    target = source if joint else WordVocabulary.learn(["Ein Mann läuft.", "Der Hund, er sieht"], 1)
    model = make(name, len(source), len(target))
    search = TranslationSearch(beam=3, maximum_length=7)
    return Translator(CONFIGS[name], model, source, target, 20, search, "# A card")
