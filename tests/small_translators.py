"""Translators small enough to be made for each test."""

from collections.abc import Iterable

import torch

from captioner.decoding.options import TranslationSearch
from captioner.schema import from_mapping
from captioner.text.vocabulary import WordVocabulary
from captioner.translate.translator import TranslationModelConfig, Translator

_GRU = {"cell": "gru", "embedding_size": 8, "hidden_size": 8, "layers": 1}
_TRANSFORMER = {"embedding_size": 8, "heads": 2, "inner_size": 8, "encoder_layers": 1}
CONFIGS = {
    name: from_mapping(TranslationModelConfig, fields, name)
    for name, fields in {
        "luong": {"luong": {**_GRU, "score": "dot"}},
        "plain": {"sequence_to_sequence": _GRU},
        "transformer": {"transformer": {**_TRANSFORMER, "decoder_layers": 2}},
    }.items()
}


def make_translator(sentences: Iterable[str], name: str = "luong") -> Translator:
    """A translator with its initial weights, of six tokens at most, that knows these words."""
    words = WordVocabulary.learn(sentences, 1)
    torch.manual_seed(0)
    model = CONFIGS[name].make(len(words), len(words))
    search = TranslationSearch(beam=3, maximum_length=5)
    return Translator(CONFIGS[name], model, words, words, 6, search)
