"""What the translation room refuses, and how it says so."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from translation_samples import CONFIGS, make, make_translator, tokens

from captioner.errors import UserError
from captioner.schema import from_mapping
from captioner.translate.gnmt import GNMTConfig
from captioner.translate.luong import LuongConfig
from captioner.translate.model import Embeddings
from captioner.translate.transformer import TransformerConfig
from captioner.translate.translated_captions import translate_captions
from captioner.translate.translator import TranslationModelConfig
from captioner.translate.translator_folder import (
    load_translator,
    load_vocabularies,
    save_translator,
)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (LuongConfig, {"hidden_size": 5, "bidirectional": True}, "hidden_size 5 is odd: each dir"),
        (LuongConfig, {"embedding_size": 4, "tie_embeddings": "target"}, "an embedding_size of 51"),
        (GNMTConfig, {"layers": 1}, "layers 1 is not at least 2"),
        (TransformerConfig, {"heads": 7}, "embedding_size 512 cannot be divided among 7 heads"),
        (TransformerConfig, {"embedding_size": 9, "heads": 3}, "embedding_size 9 is odd"),
        (TransformerConfig, {"alignment_layer": 6}, "alignment_layer 6 is not one of the 6"),
        (TransformerConfig, {"alignment_head": 8}, "alignment_head 8 is not one of the 8 heads"),
        (TranslationModelConfig, {}, "one model of sequence_to_sequence, .* found none"),
        (TranslationModelConfig, {"gnmt": {}, "luong": {}}, "found luong, gnmt"),
    ],
)
def test_a_field_out_of_range_is_named(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_mapping(kind, fields, "test")


CALLS: dict[str, Callable[[], object]] = {
    "one vocabulary for both sides, not 8 tokens on": lambda: Embeddings(8, 9, 4, 4, "all"),
    "the model has 16 source": lambda: replace(make_translator(), source=make_translator().target),
    "batch size 0": lambda: make_translator().translate("A dog.", batch_size=0),
    "the sentence is of the type bytes, not text": lambda: make_translator().translate(b"A dog."),  # type: ignore[call-overload]
    "on_error 'ignore' is neither": lambda: make_translator().translate("", on_error="ignore"),
    "unknown field 'beem'; did you mean 'beam'": lambda: make_translator().translate("", beem=3),
    "copy_unknown needs a": lambda: make_translator("gru").translate("", copy_unknown=True),
    "needs a Transformer": lambda: make_translator().choose_alignment(0, None),
    "alignment_layer 9 is not": lambda: make_translator("transformer").choose_alignment(9, None),
    "'all' is neither a nu": lambda: make_translator("transformer").choose_alignment(None, "all"),  # type: ignore[arg-type]
    "captions need a": lambda: translate_captions([], make_translator("gru"), "de"),
    "caption 1 is of": lambda: translate_captions(["a dog"], make_translator(), "fr"),  # type: ignore[type-var]
}


@pytest.mark.parametrize("message", CALLS)
def test_a_wrong_call_is_refused(message: str) -> None:
    with pytest.raises(UserError, match=message):
        CALLS[message]()


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
        ("transformer", ("model", "transformer", "tie_embeddings"), "all", "needs one vocabulary"),
    ],
)
def test_folders_that_do_not_load(
    tmp_path: Path, name: str, keys: tuple[str, ...], value: object, message: str
) -> None:
    save_translator(make_translator(name), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    mapping = section = json.loads(path.read_text())
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = value
    path.write_text(json.dumps(mapping))
    with pytest.raises(UserError, match=message):
        load_translator(tmp_path / "model")


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_source_without_tokens_is_an_error(name: str) -> None:
    model = make(name)
    errors = ValueError, RuntimeError  # Torch's own, of a recurrent encoder.
    with pytest.raises(errors, match=r"is 0|has no|empty tensors|larger than 0"):
        model.remember(tokens(2, 0))
    with pytest.raises(errors, match=r"row \[?1\]? has no|greater than 0"):
        model.remember(tokens(2, 3), torch.tensor([[True, False, False], [False] * 3]))
