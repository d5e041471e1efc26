"""`captioner translate` as a user meets it."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from samples import Output, Patch, Refused
from small_translators import make_translator

import captioner
from captioner import models
from captioner.cli.main import main
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary
from captioner.translate import save_translator
from captioner.vision.drawn import DRAWN_MARK

ROOT = Path(__file__).resolve().parents[2]


def make_model(folder: Path, name: str = "luong", ends: bool = True) -> str:
    translator = make_translator(["A man sees a dog.", "The dog runs!"], name)
    for parameter in translator.model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    if not ends:
        translator.model.embeddings.output.bias.data[Vocabulary.end] -= 100.0
    save_translator(translator, folder / name, torch.float32)
    return str(folder / name)


def give(monkeypatch: Patch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def translate(*arguments: str) -> int:
    return main(["translate", "--device", "cpu", *arguments])


def test_as_many_lines_come_out(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
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


@pytest.mark.parametrize(
    "command",
    [
        ("translate", "text"),
        ("evaluate-translator", "english_german", "text", "text"),
        ("caption", "--demo", "--language", "de"),
    ],
    ids=" ".join,
)
def test_translators_compute_in_the_precision_that_is_asked_for(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: Patch
) -> None:
    asked = []

    def load_translator(name: str, device: str, precision: str) -> None:
        asked.append(precision)
        raise UserError("stop")

    monkeypatch.chdir(tmp_path)
    Path("text").write_text("A dog.\n")
    monkeypatch.setattr(models, "load_translator", load_translator)
    monkeypatch.setattr(captioner, "load_translator", load_translator, raising=False)
    assert main([*command, "--precision", "bfloat16"]) == 2
    assert asked == ["bfloat16"]


def test_a_language_chooses_the_packages_translator(tmp_path: Path, capsys: Output) -> None:
    text = tmp_path / "text.en"
    text.write_text("A dog runs.\n")
    said = []
    for options in (["--language", "FR"], ["--model", "english_french"], []):
        assert main(["translate", str(text), *options]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]
    assert main(["translate", str(text), "--language", "it"]) == 2
    assert capsys.readouterr().err == (
        "captioner: --language it is not one of the package's, de, fr; name another translator by "
        "--model\n"
    )


def test_the_best_few(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "text").write_text("A dog.\nA man.\n")
    arguments = ("--model", make_model(tmp_path), str(tmp_path / "text"), "--n-best", "2")
    assert translate(*arguments, "--coverage-penalty", "0.2") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows] == [["1", "1"], ["1", "2"], ["2", "1"], ["2", "2"]]
    assert all(float(row[2]) < float(row[3]) < 0 and row[4] for row in rows)
    for best, other in (rows[:2], rows[2:]):
        assert float(best[2]) >= float(other[2])


def test_paths_and_notes_of_captions_are_kept_and_not_translated(
    tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    sentences = ["A dog.", "The dog runs!", "A man.", "A man: the dog.", "A dog (not sure)"]
    before = ["", "my photos/a b.JPG: ", "c.png: ", "", ""]
    notes = ["  (not sure)", "  (not sure: unlike the photos this model was trained on)"]
    after = [*notes, "  (score -1.20, log-probability -3.40, not sure)", "", ""]
    model = make_model(tmp_path)
    give(monkeypatch, "\n".join(sentences).encode())
    assert translate("--model", model) == 0
    plain = capsys.readouterr().out.splitlines()
    lines = map("".join, zip(before, sentences, after, strict=True))
    give(monkeypatch, "\n".join(lines).encode())
    out = tmp_path / "out.json"
    assert translate("--model", model, "--alignment", str(out)) == 0
    expected = list(map("".join, zip(before, plain, after, strict=True)))
    assert capsys.readouterr().out.splitlines() == expected
    assert [record["source"] for record in json.loads(out.read_text())] == sentences


def test_a_line_that_cannot_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    model, out = make_model(tmp_path), tmp_path / "out.json"
    for file in (out, tmp_path / "out.html"):
        give(monkeypatch, b"A dog.\n\xff\n\n")
        assert translate("--model", model, "--n-best", "2", "--alignment", str(file)) == 2
    rows = capsys.readouterr().out.splitlines()
    assert rows[2:4] == ["2\t1\t\t\t", "3\t1\t0.0000\t0.0000\t"]
    records = json.loads(out.read_text())
    assert [record.get("error") for record in records] == [None, "byte 1 is not UTF-8 text", None]
    assert [record["log_probability"] for record in records[1:]] == [None, 0.0]
    assert records[1]["score"] is None
    assert set(records[1]) == {*records[2], "error"}
    assert "<h2>2. (byte 1 is not UTF-8 text)</h2>" in (tmp_path / "out.html").read_text()


def test_a_translation_that_is_cut_is_reported(tmp_path: Path, capsys: Output) -> None:
    text, out = tmp_path / "text", tmp_path / "out.json"
    text.write_text("A dog.\n")
    model = make_model(tmp_path, ends=False)
    assert translate("--model", model, str(text), "--n-best", "2", "--alignment", str(out)) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"captioner: {text}: translation of line 1 was cut at 5 tokens",
        f"captioner: {text}: translation 2 of line 1 was cut at 5 tokens",
    ]
    (record,) = json.loads(out.read_text())
    assert [each["cut"] for each in (record, *record["alternatives"])] == [True, True]


def test_an_input_that_is_packed(tmp_path: Path, capsys: Output) -> None:
    model, text = make_model(tmp_path), b"A man sees a dog.\nThe dog runs!\n"
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "text.gz").write_bytes(gzip.compress(text))
    (tmp_path / "broken.gz").write_bytes(gzip.compress(text)[:-9])
    printed = []
    (tmp_path / "TEXT.GZ").write_bytes(gzip.compress(text))
    for name in ("text", "text.gz", "TEXT.GZ"):
        assert translate("--model", model, str(tmp_path / name)) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2]
    assert translate("--model", model, str(tmp_path / "broken.gz")) == 2
    assert "broken.gz is not a whole gzip file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "out", "said"),
    [
        ("in.json", "linked.json", "FILE and --alignment are the same file"),
        ("map-12.png", "map.png", "map-12.png, which is a photo; give another place"),
        ("in.json", "luong/config.json", "luong/config.json, which MODEL reads"),
    ],
)
def test_what_is_read_is_never_written_over(
    tmp_path: Path, text: str, out: str, said: str, capsys: Output
) -> None:
    model = make_model(tmp_path)
    (tmp_path / text).write_text("A dog.\n" * 12)
    (tmp_path / "linked.json").symlink_to(tmp_path / text)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    arguments = (str(tmp_path / text), "--alignment", str(tmp_path / out))
    assert translate("--model", model, *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_standard_input_is_not_written_over_either(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("A dog.\n")
    with (tmp_path / "in.json").open("rb") as file:
        done = in_a_process(["--alignment", "in.json"], tmp_path, file)
    assert done.returncode == 2
    assert b"FILE and --alignment are the same file, in.json" in done.stderr
    assert (tmp_path / "in.json").read_text() == "A dog.\n"


def test_standard_input_may_be_closed(monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert translate() == 2
    assert capsys.readouterr().err == (
        "captioner: standard input is closed: there is no text to translate\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_file_gets_utf_8_whatever_the_locale(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "in").write_bytes(b"A girl in a pink dress is trying to catch a ball.\n")
    with (tmp_path / "in").open("rb") as file:
        done = in_a_process([], tmp_path, file, PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert "ä" in done.stdout.decode("utf-8")


def in_a_process(
    arguments: list[str], folder: Path, file: BinaryIO, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "captioner", "translate", "--device", "cpu", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=file,
        capture_output=True,
    )


def test_pictures_that_are_not_drawn_are_named(
    tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    give(monkeypatch, b"A dog.\n\n\xff\nThe dog runs!\n")
    map_file = tmp_path / "map.png"
    for old in ("map-2.png", "map-3.png"):  # Those of another text would be taken for these.
        (tmp_path / old).write_bytes(DRAWN_MARK.encode())
    assert translate("--model", make_model(tmp_path), "--alignment", str(map_file)) == 2
    said = capsys.readouterr().err
    assert f"no picture {tmp_path / 'map-2.png'} of line 2: its translation is empty\n" in said
    assert f"no picture {tmp_path / 'map-3.png'} of line 3: byte 1 is not UTF-8 text\n" in said
    assert {path.name for path in tmp_path.glob("*.png")} == {"map.png", "map-4.png"}


def test_a_folder_named_as_a_numbered_picture_is_refused_at_once(
    tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "text").write_text("A dog.\nThe dog runs!\n")
    (tmp_path / "map-2.png").mkdir()
    arguments = ["translate", str(tmp_path / "text"), "--model", "absent"]
    said = refused([*arguments, "--alignment", str(tmp_path / "map.png")])
    assert f"--alignment {tmp_path / 'map-2.png'} is a folder, not a file" in said


def test_letters_that_no_font_has_are_said(
    tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setattr("captioner.render.families._installed", tuple)
    (tmp_path / "text").write_text("A \u2f00\u72ac dog.\n", encoding="utf-8")
    out = tmp_path / "map.svg"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        arguments = (str(tmp_path / "text"), "--alignment", str(out))
        assert translate("--model", "english_german", *arguments) == 0
    assert capsys.readouterr().err == (
        f"captioner: {out} has boxes in place of letters that no font here has: \u2f00 \u72ac\n"
    )


def test_bad_and_long_lines(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    give(monkeypatch, b"A dog.\n\xff\nA man sees a dog and a man\n")
    assert translate("--model", make_model(tmp_path)) == 2
    printed = capsys.readouterr()
    assert "standard input, line 2: byte 1 is not UTF-8 text" in printed.err
    assert "standard input, line 3, is too long: its last 2 tokens are not read" in printed.err
    assert len(printed.out.splitlines()) == 3
    assert printed.out.splitlines()[1] == ""


@pytest.mark.parametrize("name", ["luong", "transformer"])
def test_alignments(tmp_path: Path, name: str, capsys: Output) -> None:
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


def test_alignments_are_of_words_unless_pieces_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("The boy wants to jump.\n")  # The packaged model's subwords.
    arguments = (str(tmp_path / "text"), "--alignment")
    assert translate(*arguments, str(tmp_path / "words.html")) == 0
    assert translate(*arguments, str(tmp_path / "pieces.html"), "--pieces") == 0
    words, pieces = ((tmp_path / f"{n}.html").read_text() for n in ("words", "pieces"))
    assert "<span>wants</span>" in words
    assert "▁" not in words
    assert "<span>▁boy</span>" in pieces
    assert "<span>wants</span>" not in pieces


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


DRAWN = "--alignment", "DRAWN"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("luong", ["none.txt"], "text file none.txt does not exist"),
        ("luong", ["PHOTO"], "photo.jpg is not UTF-8 text: it has null bytes"),
        ("luong", ["A dog runs."], "does not exist; a sentence comes from standard input"),
        ("luong", ["TEXT", "--alignment", "a.doc"], "--alignment a.doc must end in"),
        ("luong", ["TEXT", "--alignment", "FOLDER"], "folder.json is a folder, not a file"),
        ("luong", ["TEXT", "--pieces"], "--pieces has no meaning without --alignment"),
        ("luong", ["TEXT", *DRAWN, "--layer", "0"], "needs a Transformer, which this is not"),
        ("transformer", ["TEXT", *DRAWN, "--layer", "2"], "alignment_layer 2 is not one of the 2"),
        ("transformer", ["TEXT", *DRAWN, "--head", "all"], "'all' is neither a number nor mean"),
        (
            "transformer",
            ["TEXT", *DRAWN, "--layer", "0", "--coverage-penalty", "1"],
            "coverage_penalty uses the alignment",
        ),
        ("plain", ["TEXT", *DRAWN], "has no meaning for a model without attention"),
        ("plain", ["TEXT", "--copy-unknown"], "copy_unknown needs a model with attention"),
    ],
)
def test_one_sentence_for_an_error(
    tmp_path: Path, name, arguments, message, capsys: Output
) -> None:
    (tmp_path / "text").write_text("A dog.\n")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\n\0\x10JFIF\n\xff\xd9")
    places = {
        "TEXT": str(tmp_path / "text"),
        "PHOTO": str(tmp_path / "photo.jpg"),
        "FOLDER": str(tmp_path / "folder.json"),
        "DRAWN": str(tmp_path / "drawn.json"),
    }
    given = [places.get(each, each) for each in arguments]
    assert translate("--model", make_model(tmp_path, name), *given) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1


def test_info_says_what_it_is(tmp_path: Path, capsys: Output) -> None:
    assert main(["info", make_model(tmp_path, "transformer")]) == 0
    text = capsys.readouterr().out
    assert "tokens, joint" in text
    assert "transformer" in text
    assert "heads: 2" in text
    assert "beam: 3" in text
