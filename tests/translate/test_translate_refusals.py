"""What the translation room refuses, and how it says so."""

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from translation_samples import make_translator

from captioner.errors import UserError
from captioner.schema import from_mapping
from captioner.translate.model import Embeddings
from captioner.translate.translated_captions import translate_captions
from captioner.translate.translator import TranslationModelConfig, load_translator, save_translator


def read(**model: Any) -> Callable[[], object]:
    return lambda: from_mapping(TranslationModelConfig, model, "test")


def translate(name: str = "general", sentence: Any = "A dog.", **options: Any) -> Any:
    return lambda: make_translator(name).translate(sentence, **options)


def choose(name: str, layer: int | None, head: Any) -> Callable[[], object]:
    return lambda: make_translator(name).choose_alignment(layer, head)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (read(luong={"hidden_size": 5, "bidirectional": True}), r"luong\.hidden_size 5 is odd"),
        (read(gnmt={"layers": 1}), r"gnmt\.layers 1 is not at least 2"),
        (read(transformer={"heads": 7}), "512 is odd or not divisible among 7 heads"),
        (read(transformer={"alignment_layer": 6}), "layer 6 is not one of 6 decoder layers"),
        (read(transformer={"alignment_head": 8}), "alignment_head 8 is not one of 8 heads"),
        (read(), "one model of sequence_to_sequence, .* found none"),
        (read(gnmt={}, luong={}), "found luong, gnmt"),
        (lambda: Embeddings(8, 9, 4, 4, "all"), r"'all' shares .*: \(9, 4\), \(9, 4\), \(8, 4\)"),
        (translate(batch_size=0), "batch size 0"),
        (translate(on_error="ignore"), "on_error 'ignore' is neither"),
        (translate(beem=3), "unknown field 'beem'; did you mean 'beam'"),
        (translate("gru", copy_unknown=True), "copy_unknown needs a model with attention"),
        (choose("general", 0, None), "needs a Transformer"),
        (choose("transformer", 9, None), "alignment_layer 9"),
        (choose("transformer", None, "all"), "alignment_head should be a .*, found 'all'"),
        (lambda: translate_captions([], make_translator("gru"), "de"), "captions need a translat"),
    ],
)
def test_sentences(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        call()


KEYS = ("model", "luong", "hidden_size"), ("model", "transformer", "tie_embeddings")


@pytest.mark.parametrize(
    ("file", "keys", "value", "sentence"),
    [
        ("source", ("kind",), "letters", r"source\.json: field 'kind' is neither 'words' nor 'sub"),
        ("source", ("case",), None, r"source\.json: field 'case' is none of 'keep', "),
        ("config", ("format",), "captioner caption model 1", "is a captioner, not a translator$"),
        ("config", KEYS[0], 24, r"safetensors: tensor 'model\..*' is"),
        ("config", KEYS[1], "all", r"config\.json: tie_embeddings 'all' shares one matrix"),
    ],
)
def test_folders_that_do_not_load(
    tmp_path: Path, file: str, keys: tuple[str, ...], value: object, sentence: str
) -> None:
    save_translator(
        make_translator("transformer" if "transformer" in keys else "general"), tmp_path
    )
    path = tmp_path / f"{file}.json"
    mapping = json.loads(path.read_text())
    reduce(dict.__getitem__, keys[:-1], mapping)[keys[-1]] = value
    path.write_text(json.dumps(mapping))
    with pytest.raises(UserError, match=sentence):
        load_translator(tmp_path)
