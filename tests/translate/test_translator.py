"""The translator: sentences in, translations out; saved and loaded."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from translation_samples import SENTENCES, make_translator

from captioner.errors import UserError
from captioner.outcomes import Failed
from captioner.text import SubwordVocabulary, WordVocabulary
from captioner.translate.translation import Translation
from captioner.translate.translator import copy_source_words
from captioner.translate.translator_folder import (
    load_translator,
    load_vocabularies,
    save_translator,
    save_vocabularies,
)


@pytest.mark.parametrize("name", ["general", "local-p", "gnmt", "transformer", "lstm"])
def test_sentences_are_translated_in_order_whatever_the_batch(name: str) -> None:
    translator = make_translator(name)
    one = [translator.translate([sentence])[0] for sentence in SENTENCES]
    for batch_size in (2, 32):
        found = translator.translate(SENTENCES, batch_size=batch_size)
        assert [each.text for each in found] == [each.text for each in one]
        for each, alone in zip(found, one, strict=True):
            torch.testing.assert_close(each.alignment, alone.alignment, atol=1e-4, rtol=1e-3)


def test_what_a_translation_holds() -> None:
    found = make_translator().translate(SENTENCES)
    assert found[0].source_tokens == ("a", "man", "runs", ".", "<end>")
    assert found[0].alignment.shape == (len(found[0].tokens), 5)
    assert len(found[0].token_log_probabilities) == len(found[0].tokens) >= 1
    assert found[0].log_probability < sum(found[0].token_log_probabilities)
    assert all("￭" not in token for token in (*found[0].tokens, found[0].text))
    for empty in (found[1], found[4]):
        assert (empty.text, empty.tokens, empty.log_probability) == ("", (), 0.0)
        assert empty.alignment.shape == (0, 1)
    plain = json.loads(json.dumps(found[0].to_dict()))
    assert plain["translation"] == found[0].text
    assert len(plain["alignment"]) == len(plain["tokens"])
    assert "truncated" not in plain


def test_entities_are_unescaped() -> None:
    escaped, plain = make_translator().translate(["&quot;A man &amp; runs", '"A man & runs'])
    assert escaped.to_dict() == plain.to_dict()
    assert "quot" not in escaped.source_tokens


def test_one_sentence_gives_one_translation_a_list_a_list_and_an_iterator_an_iterator() -> None:
    translator = make_translator()
    expected = [each.text for each in translator.translate(SENTENCES)]
    one = translator.translate(SENTENCES[0])
    assert isinstance(one, Translation)
    assert one.text == expected[0]
    assert translator.translate("").text == ""
    assert [each.text for each in translator.translate(dict.fromkeys(SENTENCES))] == expected
    read: list[str] = []

    def sentences() -> Iterator[str]:
        for sentence in SENTENCES:
            read.append(sentence)
            yield sentence

    found = translator.translate(sentences(), batch_size=2)
    assert isinstance(found, Iterator)
    assert read == []
    assert next(found).text == expected[0]
    assert len(read) == 2
    assert [each.text for each in found] == expected[1:]


def test_search_options_go_over_the_models_own() -> None:
    translator = make_translator()
    found = translator.translate(["A man runs."], beam=5, n_best=4, length_normalisation=1.0)
    options = translator.search.replace(beam=5, n_best=4, length_normalisation=1.0)
    assert found == translator.translate(["A man runs."], options)
    assert found == translator.translate(["A man runs."], options.replace(n_best=2), n_best=4)
    assert len(found[0].alternatives) == 3


def test_what_is_no_sentence_is_named_or_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = make_translator()
    given: list[Any] = ["A man runs.", None, "Dogs run!", b"Dogs run!"]
    monkeypatch.setattr(translator, "_translate", None)  # A list is refused before any work.
    with pytest.raises(UserError, match="sentence 2 is of the type NoneType, not text"):
        translator.translate(given)
    monkeypatch.undo()
    first, nothing, last, content = translator.translate(given, on_error="skip", batch_size=3)
    assert [first, last] == translator.translate([given[0], given[2]])
    assert nothing == Failed("sentence 2", "sentence 2 is of the type NoneType, not text")
    assert str(content) == "sentence 4 is of the type bytes, not text"


def test_translations_are_ranked_by_score() -> None:
    translator = make_translator()
    search = translator.search.replace(n_best=3, length_normalisation=2.0)
    for penalty in (0.0, 10.0):
        options = search.replace(coverage_penalty=penalty)
        (found,) = translator.translate([SENTENCES[2]], options)
        ranked = [found, *found.alternatives]
        scores = [each.score for each in ranked]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert [each["score"] for each in found.to_dict()["alternatives"]] == scores[1:]
        for each in ranked:
            fair = each.log_probability / ((5 + len(each.tokens) + 1) / 6) ** 2
            covered = float(each.alignment.sum(dim=0).clamp(max=1.0).log().sum())
            # The step of the end, which is not in the alignment, may cover more.
            assert fair + penalty * covered - 1e-4 < each.score < fair + 1e-4
            assert (each.score < fair - 1) is (penalty > 0)


def test_a_translation_that_had_to_end_says_so() -> None:
    translator = make_translator()
    (found,) = translator.translate(["A man runs."], translator.search.replace(maximum_length=1))
    assert found.cut
    assert found.to_dict()["cut"] is True
    with torch.no_grad():
        translator.model.embeddings.output.bias[2] += 100.0  # It wants to end.
    one = translator.search.replace(minimum_length=1, maximum_length=1)
    (found,) = translator.translate(["A man runs."], one)
    assert len(found.tokens) == 1
    assert not found.cut
    assert "cut" not in found.to_dict()


def test_too_long_a_source_is_cut_with_a_warning() -> None:
    translator = make_translator()
    translator.maximum_source_length = 3
    with pytest.warns(UserWarning, match="sentence 2 has 4 tokens, of which the last 1 "):
        short, found = translator.translate(["A man", "A man runs."])
    assert (short.truncated, found.truncated) == (0, 1)
    assert found.source_tokens == ("a", "man", "runs", "<end>")
    assert found.to_dict()["truncated"] == 1
    assert found.text == translator.translate(["A man runs"])[0].text
    with pytest.warns(UserWarning, match="the sentence has 4 tokens"):
        assert translator.translate("A man runs.").text == found.text


def test_unknown_words_are_copied_from_where_the_model_looked() -> None:
    alignment = torch.tensor([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])  # the last is the end's
    assert copy_source_words(["<unk>", "x"], [3, 9], ["Anna", "Bob"], alignment) == ["Bob", "x"]
    assert copy_source_words(["x", "<unk>"], [9, 3], ["Anna", "Bob"], alignment) == ["x", "Anna"]
    translator = make_translator()
    with torch.no_grad():
        translator.model.embeddings.output.bias[3] += 100.0  # It knows no word.
    options = translator.search.replace(copy_unknown=True, maximum_length=3)
    (found,) = translator.translate(["Xaver Yvonne"], options)
    assert set(found.tokens) <= {"Xaver", "Yvonne"}
    assert len(found.tokens) == 3
    (plain,) = translator.translate(["Xaver Yvonne"], options.replace(copy_unknown=False))
    assert not {"Xaver", "Yvonne", "<unk>"} & set(plain.tokens)


def test_the_alignment_may_be_another_layers_or_heads() -> None:
    translator = make_translator("transformer, post-norm", joint=True)  # Its alignment_head is 1.
    heads = []
    for head in (0, 1, 2):
        translator.choose_alignment(None, head)
        heads.append(translator.translate(["A man runs."])[0].alignment)
    translator.choose_alignment(0, None)
    lowest = translator.translate(["A man runs."])[0]
    translator.choose_alignment(-1, "mean")
    mean = translator.translate(["A man runs."])[0]
    torch.testing.assert_close(mean.alignment, torch.stack(heads).mean(dim=0))
    assert not torch.allclose(lowest.alignment, heads[2])
    assert lowest.tokens == mean.tokens


def test_lines_in_capitals_are_read_as_sentences() -> None:
    translator = replace(make_translator(joint=True), capitals="titles")
    search = translator.search.replace(n_best=2, minimum_length=4)
    usual, loud, title, other = translator.translate(
        ["The dog sees a man.", "THE DOG SEES A MAN.", "The Dog Sees a Man.", "DOG"], search
    )
    assert title.text == usual.text
    assert title.source_tokens == loud.source_tokens == usual.source_tokens
    assert loud.text == usual.text.upper() != usual.text
    assert loud.alternatives[0].text == usual.alternatives[0].text.upper()
    assert loud.tokens == usual.tokens
    assert loud.by_word().source == ("THE", "DOG", "SEES", "A", "MAN", ".", "<end>")
    assert loud.by_word().target == tuple(word.upper() for word in usual.by_word().target)
    torch.testing.assert_close(loud.alignment, usual.alignment)
    assert other.source_tokens == ("DOG", "<end>")


@pytest.mark.parametrize("joint", [True, False])
def test_saved_and_loaded(tmp_path: Path, joint: bool) -> None:
    translator = make_translator("transformer, post-norm" if joint else "gnmt", joint)
    translator.capitals = "lines"
    save_translator(translator, tmp_path / "model", torch.float32)
    again = load_translator(tmp_path / "model")
    for field in ("config", "search", "maximum_source_length", "card", "capitals"):
        assert getattr(again, field) == getattr(translator, field)
    assert (again.source is again.target) is joint
    weights = translator.model.state_dict()
    assert weights.keys() == again.model.state_dict().keys()
    assert all(torch.equal(again.model.state_dict()[name], weights[name]) for name in weights)
    # Up to rounding: a tensor read from a file need not lie in memory as the first one did.
    for found, expected in zip(
        again.translate(SENTENCES), translator.translate(SENTENCES), strict=True
    ):
        assert found.tokens == expected.tokens
        assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-5)
        torch.testing.assert_close(found.alignment, expected.alignment)
    names = {path.name for path in (tmp_path / "model").iterdir()}
    vocabularies = {"vocabulary.json"} if joint else {"source.json", "target.json"}
    assert names == {"model.safetensors", "config.json", "README.md", *vocabularies}


@pytest.mark.parametrize("name", ["gru", "bahdanau", "dot", "gnmt", "transformer"])
def test_a_model_saved_before_a_field_was_there_loads(tmp_path: Path, name: str) -> None:
    translator = make_translator(name)
    save_translator(translator, tmp_path / "model", torch.float32)
    path = tmp_path / "model" / "config.json"
    mapping = json.loads(path.read_text())
    del mapping["search"]["repeat_distance"], mapping["capitals"]
    for section in mapping["model"].values():
        if section is not None:
            section.pop("scale_embeddings", None)
    path.write_text(json.dumps(mapping))
    again = load_translator(tmp_path / "model")
    assert (again.config, again.search) == (translator.config, translator.search)
    assert again.capitals == "keep"


def test_vocabularies_of_two_kinds_are_saved_and_loaded(tmp_path: Path) -> None:
    words, pieces = WordVocabulary.learn(SENTENCES, 1), SubwordVocabulary.learn(SENTENCES, 300)
    save_vocabularies(tmp_path, words, pieces)
    assert load_vocabularies(tmp_path, joint=False) == (words, pieces)
