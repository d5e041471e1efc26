"""Translators small enough to be made for each test."""

from collections.abc import Iterable

import torch

from captioner.decoding.options import TranslationSearch
from captioner.text.vocabulary import WordVocabulary
from captioner.translate.recurrent_models import LuongConfig, SequenceToSequenceConfig
from captioner.translate.transformer import TransformerConfig
from captioner.translate.translator import TranslationModelConfig, Translator

CONFIGS = {
    "luong": TranslationModelConfig(
        luong=LuongConfig(cell="gru", embedding_size=8, hidden_size=8, layers=1, score="dot")
    ),
    "plain": TranslationModelConfig(
        sequence_to_sequence=SequenceToSequenceConfig(
            cell="gru", embedding_size=8, hidden_size=8, layers=1
        )
    ),
    "transformer": TranslationModelConfig(
        transformer=TransformerConfig(
            embedding_size=8, heads=2, inner_size=8, encoder_layers=1, decoder_layers=2
        )
    ),
}


def make_translator(sentences: Iterable[str], name: str = "luong") -> Translator:
    """A translator with its initial weights, of six tokens at most, that knows these words."""
    words = WordVocabulary.learn(sentences, 1)
    torch.manual_seed(0)
    model = CONFIGS[name].make(len(words), len(words))
    search = TranslationSearch(beam=3, maximum_length=5)
    return Translator(CONFIGS[name], model, words, words, 6, search)
