"""The translator: sentences in, translations out; saved and loaded."""

import json
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from samples import renew_digests
from translation_samples import SENTENCES, make_translator

from captioner import load_translator
from captioner.errors import UserError
from captioner.models.translation_config import TranslationModelConfig
from captioner.outcomes import Failed
from captioner.render.alignment import Alignment, save_heat_map
from captioner.schema import from_mapping
from captioner.text.sentences import Word
from captioner.translate.folder import save_translator
from captioner.translate.translated_captions import translate_captions
from captioner.translate.translation import Translation


@pytest.mark.parametrize("name", ["general", "local-p", "gnmt", "transformer", "lstm"])
def test_sentences_are_translated_in_order_whatever_the_batch(name: str) -> None:
    translator = make_translator(name)
    one = [translator.translate(sentence) for sentence in SENTENCES]
    for batch_size in (2, 32):
        found = translator.translate(SENTENCES, batch_size=batch_size)
        for each, alone in zip(found, one, strict=True):
            assert each.text == alone.text
            np.testing.assert_allclose(each.alignment, alone.alignment, atol=1e-4, rtol=1e-3)


def test_a_translation_holds_tokens_scores_and_alignment() -> None:
    escaped, *found = make_translator().translate(["A man &quot;runs&quot;", *SENTENCES])
    assert escaped.source_tokens == ("a", "man", '"', "runs", '"', "<end>")  # Without entities.
    assert found[0].source_tokens == ("a", "man", "runs", ".", "<end>")
    assert found[0].alignment.shape == (len(found[0].token_log_probabilities), 5)
    assert found[0].log_probability < sum(found[0].token_log_probabilities)
    assert [each for each in (*found[0].tokens, found[0].text) if "￭" in each] == []
    for empty in (found[1], found[4]):
        assert (empty.text, empty.tokens, empty.log_probability) == ("", (), 0.0)
        assert empty.alignment.shape == (0, 1)
    plain = json.loads(json.dumps(found[0].to_dict()))
    assert plain["translation"] == found[0].text
    assert not {"truncated", "alternatives"} & plain.keys()


def test_an_iterator_is_read_batch_by_batch_and_gives_an_iterator() -> None:
    translator = make_translator()
    expected = [each.text for each in translator.translate(dict.fromkeys(SENTENCES))]
    read: list[str] = []
    sentences = (read.append(sentence) or sentence for sentence in SENTENCES)
    found = translator.translate(sentences, batch_size=2)
    assert read == []
    assert (next(found).text, len(read)) == (expected[0], 2)
    assert [each.text for each in found] == expected[1:]


def test_a_source_that_is_no_sentence_is_named_or_skipped() -> None:
    translator = make_translator()
    given: list[Any] = ["A man runs.", None, "Dogs run!", b"Dogs run!"]
    with pytest.raises(UserError, match="sentence 2 is of the type NoneType, not text"):
        translator.translate(given)
    first, nothing, last, content = translator.translate(given, on_error="skip", batch_size=3)
    assert [first, last] == translator.translate([given[0], given[2]])
    assert nothing == Failed("sentence 2", "sentence 2 is of the type NoneType, not text")
    assert str(content) == "sentence 4 is of the type bytes, not text"


def test_translations_are_ranked_by_score() -> None:
    translator, options = make_translator(), {"n_best": 3, "length_normalisation": 2.0}
    search = translator.search.replace(beam=5, coverage_penalty=10.0)
    found = translator.translate(SENTENCES[2], search, **options)  # Over those of the search.
    assert found == translator.translate(SENTENCES[2], search.replace(**options))
    scores = [each.score for each in (found, *found.alternatives)]
    assert scores == sorted(scores, reverse=True)
    assert [each["score"] for each in found.to_dict()["alternatives"]] == scores[1:]
    fair = found.log_probability / ((5 + len(found.tokens) + 1) / 6) ** 2
    assert found.score < fair - 1  # By what is not covered.


def test_a_translation_that_had_to_end_and_a_source_too_long_say_so() -> None:
    translator = make_translator()
    found = translator.translate("A man runs.", maximum_length=1)
    assert (found.cut, found.to_dict()["cut"]) == (True, True)
    translator.maximum_source_length = 3
    with pytest.warns(UserWarning, match="sentence 2 has 4 tokens, of which the last 1 "):
        short, found = translator.translate(["A man", "A man runs."])
    assert (short.truncated, found.truncated, found.to_dict()["truncated"]) == (0, 1, 1)
    assert found.source_tokens == ("a", "man", "runs", "<end>")
    assert found.text == translator.translate("A man runs").text


def test_unknown_words_are_copied_from_where_the_model_looked() -> None:
    translator = make_translator()
    with torch.no_grad():
        translator.backend.model.embeddings.output.bias[3] += 100.0  # It knows no word.
    found = translator.translate("Xaver Yvonne", copy_unknown=True, maximum_length=3)
    places = found.alignment[:, :2].argmax(axis=1).tolist()  # Never the source's end.
    assert found.tokens == tuple(("Xaver", "Yvonne")[place] for place in places)
    assert len(found.tokens) == 3
    plain = translator.translate("Xaver Yvonne", maximum_length=3)
    assert not {"Xaver", "Yvonne", "<unk>"} & set(plain.tokens)


def test_the_alignment_may_be_another_layers_or_heads() -> None:
    translator = make_translator("transformer, post-norm", joint=True)  # Its alignment_head is 1.

    def alignment(layer: int | None, head: Any) -> Any:
        translator.choose_alignment(layer, head)
        return translator.translate("A man runs.").alignment

    heads = [alignment(None, head) for head in (0, 1, 2)]
    assert not np.allclose(alignment(0, None), heads[2])
    np.testing.assert_allclose(alignment(-1, "mean"), np.mean(heads, axis=0), atol=1e-6)


def test_a_line_in_capitals_is_read_as_a_sentence() -> None:
    translator = replace(make_translator(joint=True), capitals="lines")
    sentence = "The dog sees a man."
    given = [sentence, sentence.upper()]
    usual, loud = translator.translate(given, n_best=2, minimum_length=4)
    assert loud.source_tokens == usual.source_tokens
    assert loud.alternatives[0].text == usual.alternatives[0].text.upper()


@pytest.mark.parametrize(("name", "joint"), [("transformer, post-norm", True), ("gnmt", False)])
def test_saved_and_loaded(tmp_path: Path, name: str, joint: bool) -> None:
    translator = make_translator(name, joint)
    save_translator(translator, tmp_path, torch.float32)
    path = tmp_path / "config.json"
    mapping = json.loads(path.read_text())
    del mapping["search"]["repeat_distance"], mapping["capitals"]  # Fields added later.
    for section in filter(None, mapping["model"].values()):
        section.pop("scale_embeddings", None)
    path.write_text(json.dumps(mapping))
    again = load_translator(tmp_path)
    assert again.backend.config == translator.backend.config
    for field in ("search", "maximum_source_length", "card", "capitals"):
        assert getattr(again, field) == getattr(translator, field)
    assert (again.source is again.target) is joint
    weights, loaded = (each.backend.model.state_dict() for each in (translator, again))
    torch.testing.assert_close(loaded, weights, rtol=0, atol=0)
    found = [[each.tokens for each in one.translate(SENTENCES)] for one in (translator, again)]
    assert found[0] == found[1]
    names = ["vocabulary.json"] if joint else ["source.json", "target.json"]
    names += ["README.md", "config.json", "model.safetensors"]
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(names)


# One translation: "wants" is read in two pieces and "möchte" written in two.

READ = (Word("He", 1), Word("wants", 2), Word("<end>", 1))
WRITTEN = (Word("Er", 1), Word("möchte", 2))
READ_WORDS = ("He", "wants", "<end>")
WEIGHTS = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.5, 0.0]])
BY_WORD = [[0.7, 0.2, 0.1], [0.05, 0.75, 0.2]]


def translation(weights: Any, words: tuple[Word, ...] = WRITTEN) -> Translation:
    tokens = ("▁Er", "▁möch", "te")[: sum(word.size for word in words)]
    read = ("▁He", "▁want", "s", "<end>")
    return Translation("Er möchte", read, tokens, -1.0, (), weights, READ, words)


def test_pieces_read_are_added_and_pieces_written_averaged() -> None:
    source, target, weights = translation(WEIGHTS).by_word()
    assert (source, target) == (READ_WORDS, ("Er", "möchte"))
    np.testing.assert_allclose(weights, BY_WORD, rtol=1e-5)
    plain = translation(WEIGHTS).to_dict()
    assert (plain["word_alignment"], plain["source_words"]) == (BY_WORD, ["He", "wants", "<end>"])
    assert len(plain["alignment"]) == len(plain["tokens"]) == 3
    source, target, weights = translation(WEIGHTS).by_token()
    assert (source[1], target[2], weights[0].tolist()) == ("▁want", "te", WEIGHTS[0].tolist())
    assert translation(WEIGHTS[:0], ()).by_word().weights.shape == (0, 3)
    assert translation(WEIGHTS[:, :0]).by_word().weights.shape == (2, 0)


def test_a_translation_draws_its_alignment(tmp_path: Path) -> None:
    translation(WEIGHTS).heat_map(tmp_path / "a.png")
    save_heat_map(tmp_path / "b.png", Alignment(READ_WORDS, ("Er", "möchte"), BY_WORD))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(UserError, match=r"c\.png: a model without attention has no alignment"):
        translation(WEIGHTS[:, :0]).heat_map(tmp_path / "c.png")


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"luong": {"hidden_size": 5, "bidirectional": True}}, r"luong\.hidden_size 5 is odd"),
        ({"gnmt": {"layers": 1}}, r"gnmt\.layers should be greater than or equal to 2"),
        ({"transformer": {"heads": 7}}, "512 is odd or not divisible among 7 heads"),
        ({"transformer": {"alignment_layer": 6}}, "layer 6 is not one of 6 decoder layers"),
        ({"transformer": {"alignment_head": 8}}, "alignment_head 8 is not one of 8 heads"),
        ({}, "one model of sequence_to_sequence, .* found none"),
        ({"gnmt": {}, "luong": {}}, "found luong, gnmt"),
    ],
)
def test_wrong_configs_are_refused(model: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        from_mapping(TranslationModelConfig, model, "test")


@pytest.mark.parametrize(
    ("name", "method", "options", "sentence"),
    [
        ("general", "translate", {"batch_size": 0}, "batch size 0"),
        ("general", "translate", {"on_error": "ignore"}, "on_error 'ignore' is neither"),
        ("general", "translate", {"beem": 3}, "unknown field 'beem'; did you mean 'beam'"),
        ("gru", "translate", {"copy_unknown": True}, "copy_unknown needs a model with attention"),
        ("general", "choose_alignment", {"layer": 0}, "needs a Transformer"),
        ("transformer", "choose_alignment", {"layer": 9}, "alignment_layer 9"),
        ("transformer", "choose_alignment", {"head": "all"}, "alignment_head .*, found 'all'"),
    ],
)
def test_wrong_options_are_refused(
    name: str, method: str, options: dict[str, Any], sentence: str
) -> None:
    given = {"sentences": "A dog."} if method == "translate" else {"layer": None, "head": None}
    with pytest.raises(UserError, match=sentence):
        getattr(make_translator(name), method)(**(given | options))
    with pytest.raises(UserError, match="captions need a translator with attention"):
        translate_captions([], make_translator("gru"), "de")


@pytest.mark.parametrize(
    ("file", "keys", "value", "sentence"),
    [
        ("source", ("kind",), "letters", r"source\.json: fields 'kind' and 'case' are of no"),
        ("source", ("case",), None, r"source\.json: fields 'kind' and 'case' are of no"),
        ("config", ("format",), "captioner caption model 1", "is a captioner, not a translator$"),
        ("config", ("model", "luong", "hidden_size"), 24, r"safetensors: tensor 'model\..*' is"),
        ("config", ("model", "transformer", "tie_embeddings"), "all", "json: tie_embeddings 'all'"),
    ],
)
def test_folders_that_do_not_load(
    tmp_path: Path, file: str, keys: tuple[str, ...], value: object, sentence: str
) -> None:
    name = "transformer" if "transformer" in keys else "general"
    save_translator(make_translator(name), tmp_path)
    path = tmp_path / f"{file}.json"
    mapping = json.loads(path.read_text())
    reduce(dict.__getitem__, keys[:-1], mapping)[keys[-1]] = value
    path.write_text(json.dumps(mapping))
    if file != "config":
        renew_digests(tmp_path, path.name)
    with pytest.raises(UserError, match=sentence):
        load_translator(tmp_path)
