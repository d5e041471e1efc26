from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.schema import from_mapping, to_mapping
from captioner.translate import (
    GNMT,
    BahdanauConfig,
    GNMTConfig,
    LuongConfig,
    SequenceToSequenceConfig,
    TransformerConfig,
    TranslationModelConfig,
    TranslationObjective,
)
from captioner.translate.model import Embeddings


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (SequenceToSequenceConfig, {"cell": "rnn"}, "cell 'rnn' is not one of lstm, gru"),
        (SequenceToSequenceConfig, {"layers": 0}, "layers 0"),
        (SequenceToSequenceConfig, {"dropout": 1.0}, "dropout 1.0 is not below 1"),
        (BahdanauConfig, {"attention_size": 0}, "attention_size 0"),
        (BahdanauConfig, {"output_state": "last"}, "output_state 'last' is not one of"),
        (LuongConfig, {"score": "additive"}, "score 'additive' is not one of dot, general"),
        (LuongConfig, {"attention": "local"}, "attention 'local' is not one of global"),
        (LuongConfig, {"window": 0}, "window 0"),
        (LuongConfig, {"hidden_size": 5, "bidirectional": True}, "hidden_size 5 is odd: each dir"),
        (GNMTConfig, {"layers": 1}, "layers 1 is not at least 2"),
        (GNMTConfig, {"residual_from": 2}, "residual_from 2 is not at least 3"),
        (TransformerConfig, {"heads": 7}, "embedding_size 512 cannot be divided among 7 heads"),
        (TransformerConfig, {"embedding_size": 9, "heads": 3}, "embedding_size 9 is odd"),
        (TransformerConfig, {"inner_dropout": -0.1}, "inner_dropout -0.1 is not at least 0"),
        (TransformerConfig, {"alignment_layer": 6}, "alignment_layer 6 is not one of the 6"),
        (TransformerConfig, {"alignment_head": 8}, "alignment_head 8 is not one of the 8 heads"),
        (TransformerConfig, {"tie_embeddings": "both"}, "tie_embeddings 'both' is not one of"),
        (
            LuongConfig,
            {"embedding_size": 4, "tie_embeddings": "target"},
            "tie_embeddings 'target' needs an embedding_size of 512",
        ),
        (TranslationObjective, {"label_smoothing": 1.0}, "label_smoothing 1.0 is not below 1"),
    ],
)
def test_a_field_out_of_range_is_named(kind, fields, message) -> None:
    with pytest.raises(UserError, match=message):
        from_mapping(kind, fields, "test")


@pytest.mark.parametrize("mapping", [{}, {"gnmt": {}, "luong": {}}])
def test_there_is_one_model(mapping) -> None:
    with pytest.raises(UserError, match="one model of sequence_to_sequence, bahdanau, luong"):
        from_mapping(TranslationModelConfig, mapping, "test")


def test_a_section_names_the_model() -> None:
    config = from_mapping(TranslationModelConfig, {"gnmt": {"layers": 2, "hidden_size": 4}}, "test")
    assert isinstance(config.make(8, 9), GNMT)
    assert from_mapping(TranslationModelConfig, to_mapping(config), "again") == config


def test_embeddings_of_two_vocabularies_are_not_one() -> None:
    with pytest.raises(UserError, match="one vocabulary for both sides, not 8 tokens on one and 9"):
        Embeddings(8, 9, 4, 4, "all")
