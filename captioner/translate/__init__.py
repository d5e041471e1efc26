"""Translation models on the shared attention core and decoder loop."""

from captioner.decoding import TranslationSearch
from captioner.translate.bahdanau import Bahdanau, BahdanauConfig
from captioner.translate.gnmt import GNMT, GNMTConfig
from captioner.translate.luong import Luong, LuongConfig
from captioner.translate.model import TranslationLoss, TranslationModel, TranslationObjective
from captioner.translate.recurrent import (
    SequenceToSequence,
    SequenceToSequenceConfig,
    SourceMemory,
)
from captioner.translate.transformer import Transformer, TransformerConfig
from captioner.translate.translation import Translation
from captioner.translate.translator import TranslationModelConfig, Translator
from captioner.translate.translator_folder import load_translator, save_translator

__all__ = [
    "GNMT",
    "Bahdanau",
    "BahdanauConfig",
    "GNMTConfig",
    "Luong",
    "LuongConfig",
    "SequenceToSequence",
    "SequenceToSequenceConfig",
    "SourceMemory",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "TranslationLoss",
    "TranslationModel",
    "TranslationModelConfig",
    "TranslationObjective",
    "TranslationSearch",
    "Translator",
    "load_translator",
    "save_translator",
]
