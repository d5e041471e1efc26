"""`captioner translate` as a user meets it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import torch

from captioner.cli.main import main
from captioner.text.words import WordVocabulary
from captioner.translate import (
    LuongConfig,
    SequenceToSequenceConfig,
    TransformerConfig,
    TranslationModelConfig,
    TranslationSearch,
    Translator,
    save_translator,
)

CONFIGS = {
    "luong": TranslationModelConfig(luong=LuongConfig("gru", 8, 8, 1, score="dot")),
    "plain": TranslationModelConfig(sequence_to_sequence=SequenceToSequenceConfig("gru", 8, 8, 1)),
    "transformer": TranslationModelConfig(transformer=TransformerConfig(8, 2, 8, 1, 2)),
}


def make_model(folder: Path, name: str = "luong") -> str:
    vocabulary = WordVocabulary.learn(["A man sees a dog.", "The dog runs!"], 1)
    torch.manual_seed(0)
    model = CONFIGS[name].make(len(vocabulary), len(vocabulary))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    search = TranslationSearch(beam=3, maximum_length=5)
    translator = Translator(CONFIGS[name], model, vocabulary, vocabulary, 6, search)
    save_translator(translator, folder / name, torch.float32)
    return str(folder / name)


def give(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def translate(*arguments: str) -> int:
    return main(["translate", "--device", "cpu", *arguments])


def test_as_many_lines_come_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model(tmp_path)
    give(monkeypatch, b"A man sees a dog.\r\n\nThe dog runs!")
    assert translate("--model", model) == 0
    from_input = capsys.readouterr().out
    lines = from_input.split("\n")
    assert len(lines) == 4
    assert lines[0]
    assert lines[1] == ""
    assert lines[2]
    (tmp_path / "text").write_text("\ufeffA man sees a dog.\n\nThe dog runs!\n", encoding="utf-8")
    assert translate("--model", model, str(tmp_path / "text"), "--batch-size", "1") == 0
    assert capsys.readouterr().out == from_input


def test_the_best_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("A dog.\nA man.\n")
    arguments = ("--model", make_model(tmp_path), str(tmp_path / "text"), "--n-best", "2")
    assert translate(*arguments, "--coverage-penalty", "0.2") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert all(float(row[1]) < 0 and row[2] for row in rows)


def test_bad_and_long_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, b"A dog.\n\xff\nA man sees a dog and a man\n")
    assert translate("--model", make_model(tmp_path)) == 2
    printed = capsys.readouterr()
    assert "standard input, line 2: byte 1 is not UTF-8 text" in printed.err
    assert "line 3 is too long: its last 2 tokens are not read" in printed.err
    assert len(printed.out.splitlines()) == 3
    assert printed.out.splitlines()[1] == ""


@pytest.mark.parametrize("name", ["luong", "transformer"])
def test_alignments(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_model(tmp_path, name)
    (tmp_path / "text").write_text("A dog.\nThe man runs!\n")
    for file in ("a.json", "a.html", "a.png"):
        out = str(tmp_path / file)
        assert translate("--model", model, str(tmp_path / "text"), "--alignment", out) == 0
    records = json.loads((tmp_path / "a.json").read_text())
    assert [record["source"] for record in records] == ["A dog.", "The man runs!"]
    assert records[0]["source_tokens"] == ["a", "dog", ".", "<end>"]
    assert [len(row) for row in records[0]["alignment"]] == [4] * len(records[0]["tokens"])
    assert records[0]["source_words"] == ["a", "dog", ".", "<end>"]
    assert len(records[0]["word_alignment"]) == len(records[0]["words"])
    assert "<table>" in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.png").exists()
    assert (tmp_path / "a-2.png").exists()


def test_alignments_are_of_words_unless_pieces_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("The boy wants to jump.\n")  # The packaged model's subwords.
    arguments = (str(tmp_path / "text"), "--alignment")
    assert translate(*arguments, str(tmp_path / "words.html")) == 0
    assert translate(*arguments, str(tmp_path / "pieces.html"), "--pieces") == 0
    words, pieces = ((tmp_path / f"{n}.html").read_text() for n in ("words", "pieces"))
    assert "<span>wants</span>" in words
    assert "▁" not in words
    assert "<span>▁boy</span>" in pieces
    assert "<span>wants</span>" not in pieces
    assert translate(str(tmp_path / "text"), "--pieces") == 2
    assert "--pieces has no meaning without --alignment" in capsys.readouterr().err


def test_a_layer_and_a_head(tmp_path: Path) -> None:
    model = make_model(tmp_path, "transformer")
    (tmp_path / "text").write_text("A man sees a dog.\n")
    found = []
    for choice in ((), ("--layer", "0"), ("--layer", "0", "--head", "1"), ("--head", "mean")):
        out = str(tmp_path / "a.json")
        assert translate("--model", model, str(tmp_path / "text"), "--alignment", out, *choice) == 0
        found.append(json.loads((tmp_path / "a.json").read_text())[0])
    assert found[0]["translation"] == found[1]["translation"] == found[2]["translation"]
    assert found[0]["alignment"] != found[1]["alignment"] != found[2]["alignment"]
    assert found[3] == found[0]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("luong", ["none.txt"], "text file none.txt does not exist"),
        ("luong", ["TEXT", "--alignment", "a.doc"], "--alignment a.doc must end in"),
        ("luong", ["TEXT", "--batch-size", "0"], "--batch-size 0 is not at least 1"),
        ("luong", ["TEXT", "--layer", "0"], "is of a Transformer, which this is not"),
        ("luong", ["TEXT", "--beam", "0"], "beam size 0"),
        ("luong", ["TEXT", "--coverage-penalty", "-1"], "beta -1.0 is not between"),
        ("transformer", ["TEXT", "--layer", "2"], "alignment_layer 2 is not one of the 2"),
        ("transformer", ["TEXT", "--head", "2"], "alignment_head 2 is not one of the 2 heads"),
        ("transformer", ["TEXT", "--head", "all"], "head 'all' is neither a number nor mean"),
        (
            "transformer",
            ["TEXT", "--layer", "0", "--coverage-penalty", "1"],
            "coverage_penalty goes by the alignment",
        ),
        ("plain", ["TEXT", "--coverage-penalty", "1"], "coverage_penalty needs a model with"),
        (
            "plain",
            ["TEXT", "--alignment", "a.json"],
            "has no meaning for a model without attention",
        ),
        ("plain", ["TEXT", "--copy-unknown"], "copy_unknown needs a model with attention"),
    ],
)
def test_one_sentence_for_an_error(
    tmp_path: Path, name, arguments, message, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("A dog.\n")
    given = [str(tmp_path / "text") if each == "TEXT" else each for each in arguments]
    assert translate("--model", make_model(tmp_path, name), *given) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1


def test_a_model_of_captions_is_refused(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("A dog.\n")
    assert translate("--model", str(tiny_model), str(tmp_path / "text")) == 2
    assert "is not the config of a translation model" in capsys.readouterr().err


def test_info_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", make_model(tmp_path, "transformer")]) == 0
    text = capsys.readouterr().out
    assert "tokens, of both sides" in text
    assert "transformer" in text
    assert "heads: 2" in text
    assert "beam: 3" in text
