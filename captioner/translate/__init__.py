"""Translation models on the shared attention core and decoder loop."""

from captioner.translate.bahdanau import Bahdanau, BahdanauConfig
from captioner.translate.batch import TranslationBatch
from captioner.translate.config import TranslationModelConfig
from captioner.translate.gnmt import GNMT, GNMTConfig
from captioner.translate.luong import Luong, LuongConfig
from captioner.translate.memory import SourceMemory
from captioner.translate.model import TeacherForced, TranslationModel
from captioner.translate.sequence_to_sequence import SequenceToSequence, SequenceToSequenceConfig
from captioner.translate.training import TranslationLoss, TranslationObjective
from captioner.translate.transformer import Transformer, TransformerConfig

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
    "TeacherForced",
    "Transformer",
    "TransformerConfig",
    "TranslationBatch",
    "TranslationLoss",
    "TranslationModel",
    "TranslationModelConfig",
    "TranslationObjective",
]
