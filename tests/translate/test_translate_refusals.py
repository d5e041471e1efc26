"""What the translation room refuses, and how it says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from translation_samples import make_translator

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
    load_translator,
    save_translator,
)
from captioner.translate.model import Embeddings
from captioner.translate.translated_captions import translate_captions
from captioner.translate.translator_folder import load_vocabularies


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


def test_parts_that_do_not_fit() -> None:
    translator = make_translator()
    with pytest.raises(UserError, match="the model has 16 source"):
        replace(translator, source=translator.target)
    with pytest.raises(UserError, match="batch size 0"):
        translator.translate(["a"], batch_size=0)
    for name in ("general", "transformer"):
        with pytest.raises(UserError, match=r"needs a Transformer|alignment_layer 9 is not one"):
            make_translator(name).choose_alignment(9, None)
    with pytest.raises(UserError, match="captions need a translator with attention"):
        translate_captions([], make_translator("gru"), "de")


@pytest.mark.parametrize("content", ["[]", '{"kind": "letters"}'])
def test_vocabularies_of_no_kind(tmp_path: Path, content: str) -> None:
    (tmp_path / "vocabulary.json").write_text(content)
    with pytest.raises(UserError, match=r"vocabulary\.json: .* neither 'words' nor 'subwords'"):
        load_vocabularies(tmp_path, joint=True)


@pytest.mark.parametrize(
    ("name", "keys", "value", "message"),
    [
        ("general", ("format",), "captioner caption model 1", "is a captioner, not a translator$"),
        ("general", ("model",), {"general": {}}, r"unknown field 'model\.general'"),
        ("general", ("model", "luong", "hidden_size"), 24, r"safetensors: tensor 'model\..*' is"),
        (
            "transformer",
            ("model", "transformer", "tie_embeddings"),
            "all",
            r"config\.json: tie_embeddings 'all' needs one vocabulary",
        ),
    ],
)
def test_folders_that_do_not_load(
    tmp_path: Path, name: str, keys: tuple[str, ...], value: object, message: str
) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_translator(tmp_path / "none")
    save_translator(make_translator(name), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    mapping = section = json.loads(path.read_text())
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = value
    path.write_text(json.dumps(mapping))
    with pytest.raises(UserError, match=message):
        load_translator(tmp_path / "model")
