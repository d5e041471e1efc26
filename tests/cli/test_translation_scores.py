"""`captioner score-translations` and `captioner evaluate-translator`, as a user meets them."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
from samples import Output, Patch, Refused
from small_translators import make_translator

from captioner.cli.main import main
from captioner.translate import Translator, load_translator, save_translator

sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")

SOURCE = ["A man sees a dog.", "The dog runs!", "A man runs and the dog sees a man and runs."]
REFERENCES = ["Ein Mann sieht einen Hund.", "Der Hund rennt!", "Ein Mann rennt, der Hund auch."]
FOUND = ["Ein Mann sieht den Hund.", "", "Ein Mann rennt, der Hund auch."]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working folder with what is translated, translations and references; and a model."""
    for name, lines in (("source", SOURCE), ("references", REFERENCES), ("found", FOUND)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    save_translator(make_translator(SOURCE + REFERENCES), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


OF_FILE = "score-translations found references"
OF_MODEL = "evaluate-translator model source references --device cpu"


def test_a_file_of_translations(folder: Path, capsys: Output) -> None:
    files = OF_FILE.split()
    assert main([*files, "--source", "source", "--json", "scores.json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    bleu = sacrebleu.corpus_bleu(FOUND, [REFERENCES])
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["BLEU"] == pytest.approx(bleu.score)
    assert scores["sentences"] == 3
    for signature in scores["signatures"].values():
        assert signature in printed.out
    assert [each["words"] for each in scores["lengths"]] == [[1, 5], [11, 15]]
    assert "11 to 15" in printed.out
    assert main(files) == 0
    printed = capsys.readouterr()
    assert f"{bleu.score:.2f}" in printed.out
    assert "words of the source" not in printed.out


def test_small_letters_and_gzip(folder: Path, capsys: Output) -> None:
    (folder / "upper.gz").write_bytes(gzip.compress("\n".join(REFERENCES).upper().encode()))
    files = ["score-translations", "upper.gz", "references"]
    assert main([*files, "--lower-case", "--json", "scores.json"]) == 0
    assert json.loads((folder / "scores.json").read_text())["BLEU"] == pytest.approx(100)


def test_a_model_is_scored_on_what_a_user_would_get(folder: Path, capsys: Output) -> None:
    options = ["--beam", "2", "--batch-size", "2", "--json", "scores.json"]
    assert main([*OF_MODEL.split(), *options]) == 0
    printed = capsys.readouterr()
    with pytest.warns(UserWarning, match="sentence 3 has 12 tokens"):
        found = load_translator("model").translate(SOURCE, beam=2)
    assert printed.err == (
        "captioner: source, line 3, is too long: its last 6 tokens are not read, since the model "
        "reads 6\n"
    )
    wanted = sacrebleu.corpus_chrf([each.text for each in found], [REFERENCES])
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["chrF"] == pytest.approx(wanted.score)
    assert scores["truncated"] == 1
    assert "cut" not in scores
    assert sum(each["sentences"] for each in scores["lengths"]) == 3


def test_translations_that_are_cut_are_counted(folder: Path, capsys: Output) -> None:
    """Of weights this small, no token is likely, and so not the end."""
    assert main([*OF_MODEL.split(), "--minimum-length", "5", "--json", "scores.json"]) == 0
    said = capsys.readouterr().err
    for line in (1, 2, 3):
        assert f"captioner: source: translation of line {line} was cut at 5 tokens\n" in said
    assert json.loads((folder / "scores.json").read_text())["cut"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("score-translations none references", "cannot read text file none: No such file"),
        ("score-translations found short", "found has 3 lines and short has 2"),
        (f"{OF_FILE} --source short", "short has 2 lines and ref"),
        ("score-translations found found", "found, line 2, is empty"),
        ("score-translations found bytes", "bytes, line 1: byte 1 is not UTF-8 text"),
        (f"{OF_FILE} --json found", "--json found exists; --overwrite replaces it"),
        ("evaluate-translator absent source references", "'absent' is neither a folder"),
        (f"{OF_MODEL} --json model/target.json", "--json model/target.json exists; --overwrite"),
        ("evaluate-translator tiny-model source references", "is a captioner, not"),
    ],
)
def test_one_sentence_for_an_error(
    folder: Path, tiny_model: Path, arguments: str, message: str, refused: Refused
) -> None:
    (folder / "short").write_text("A dog.\nA man.\n")
    (folder / "bytes").write_bytes(b"\xff\n")
    (folder / "model" / "target.json").write_text("{}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert message in refused(arguments.split())
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_without_the_package_it_is_said_before_anything_is_translated(
    folder: Path, refused: Refused, monkeypatch: Patch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setattr(Translator, "translate", None)
    assert 'sacrebleu: pip install "captioner[translate]"' in refused(OF_MODEL.split())
