"""Small translation models of every kind, for the tests beside it."""

from typing import Any

import torch
from torch import Tensor

from captioner.backends.torch_translations import TorchTranslations, make_model
from captioner.decoding.options import TranslationSearch
from captioner.models.translation_config import TranslationModelConfig
from captioner.models.translation_model import TranslationModel
from captioner.schema import from_mapping
from captioner.text import WordVocabulary
from captioner.translate.translator import Translator

SENTENCES = ["A man runs.", "", "The dog sees a man, and runs.", "Dogs run!", "   "]

SIZE = 11
"""Tokens on each side; the first four are special."""

_SIZES: dict[str, dict[str, Any]] = {
    "sequence_to_sequence": {"embedding_size": 8, "hidden_size": 12},
    "bahdanau": {"embedding_size": 8, "hidden_size": 12, "attention_size": 10, "output_size": 6},
    "luong": {"embedding_size": 8, "hidden_size": 12, "attention_size": 10, "window": 2},
    "gnmt": {"embedding_size": 8, "hidden_size": 12, "attention_size": 10},
    "transformer": {"embedding_size": 12, "heads": 3, "encoder_layers": 2, "decoder_layers": 2},
}


def config(family: str, **fields: object) -> TranslationModelConfig:
    section = {**_SIZES[family], "dropout": 0.0, **fields}
    return from_mapping(TranslationModelConfig, {family: section}, "the samples")


CONFIGS = {
    "gru": config("sequence_to_sequence", cell="gru"),
    "lstm": config("sequence_to_sequence"),
    "bahdanau": config("bahdanau"),
    "bahdanau, new state": config(
        "bahdanau", output_size=8, output_state="new", tie_embeddings="all"
    ),
    "dot": config("luong", score="dot"),
    "general": config("luong", bidirectional=True),
    "concat": config("luong", score="concat", cell="gru", layers=3),
    "cosine": config("luong", score="cosine"),
    "dot, not fed": config("luong", score="dot", input_feeding=False, bidirectional=True),
    "concat, not fed": config("luong", score="concat", input_feeding=False, cell="gru"),
    "local-m": config("luong", attention="local-m"),
    "local-m, not fed": config("luong", attention="local-m", input_feeding=False),
    "local-p": config("luong", attention="local-p", embedding_size=12, tie_embeddings="target"),
    "local-p, not fed": config("luong", attention="local-p", input_feeding=False),
    "gnmt": config("gnmt"),
    "transformer": config("transformer"),
    "transformer, post-norm": config(
        "transformer", norm_first=False, final_norm=False, tie_embeddings="all", alignment_head=1
    ),
    "transformer, first layer": config("transformer", tie_embeddings="none", alignment_layer=0),
}


def make(name: str, source_size: int = SIZE, target_size: int = SIZE) -> TranslationModel:
    """The model, with weights far enough from zero for everything to matter."""
    torch.manual_seed(0)
    model = make_model(CONFIGS[name], source_size, target_size)
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
    networks = TorchTranslations(CONFIGS[name], model, source, target)
    return Translator(networks, 20, search, "# A card")
