"""`captioner translate`, `captioner evaluate-translator` and `captioner score-translations`."""

import gzip
import json
import math
from pathlib import Path

import pytest
import torch
from samples import Give, Output, Patch, Refused, make_translator

from captioner import load_translator
from captioner.cli.main import main
from captioner.text.vocabulary import Vocabulary
from captioner.translate.folder import save_translator

sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")

SOURCE = ["A man sees a dog.", "The dog runs!", "A man runs and the dog sees a man and runs."]
REFERENCES = ["Ein Mann sieht einen Hund.", "Der Hund rennt!", "Ein Mann rennt, der Hund auch."]
FOUND = ["Ein Mann sieht den Hund.", "", "Ein Mann rennt, der Hund auch."]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The current folder, with texts."""
    monkeypatch.chdir(tmp_path)
    texts = {"text": SOURCE[:2], "source": SOURCE, "references": REFERENCES, "found": FOUND}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def make_model(name: str = "general", ends: bool = True) -> str:
    """Save a translator in the current folder."""
    translator = make_translator(SOURCE[:2], name)
    for parameter in translator.backend.model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    if not ends:
        translator.backend.model.embeddings.output.bias.data[Vocabulary.end] -= 100.0
    save_translator(translator, name, torch.float32)
    return name


def translate(*arguments: str, model: str = "") -> int:
    return main(["translate", "--device", "cpu", "--model", model or make_model(), *arguments])


def read(path: str) -> list[dict[str, object]]:
    records: list[dict[str, object]] = json.loads(Path(path).read_text())
    return records


def test_as_many_lines_come_out(give: Give, capsys: Output) -> None:
    give(b"A man sees a dog.\r\n\nThe dog runs!")
    assert translate() == 0
    from_input = capsys.readouterr().out
    first, second, third, end = from_input.split("\n")
    assert first
    assert third
    assert second == end == ""
    text = "\ufeffA man sees a dog.\n\nThe dog runs!\n".encode()
    Path("text").write_bytes(text)
    Path("TEXT.GZ").write_bytes(gzip.compress(text))
    Path("utf-16").write_bytes(text.decode("utf-8-sig").encode("utf-16"))
    for name in ("text", "TEXT.GZ", "utf-16"):
        assert translate(name, "--batch-size", "1") == 0
        assert capsys.readouterr().out == from_input


def test_one_wrong_line_of_a_marked_file_costs_no_other(capsys: Output) -> None:
    Path("text").write_bytes(b"\xef\xbb\xbfA dog.\n\xff\nThe dog runs!\n")
    assert translate("text") == 2
    printed = capsys.readouterr()
    assert [bool(line) for line in printed.out.splitlines()] == [True, False, True]
    assert "text, line 2: byte 1 is not UTF-8 text" in printed.err


def test_the_best_few(capsys: Output) -> None:
    assert translate("text", "--n-best", "2", "--coverage-penalty", "0.2") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows] == [["1", "1"], ["1", "2"], ["2", "1"], ["2", "2"]]
    assert [row for row in rows if not (float(row[2]) < float(row[3]) < 0 and row[4])] == []
    for best, other in (rows[:2], rows[2:]):
        assert float(best[2]) >= float(other[2])


def test_an_unreadable_line_is_not_taken_for_an_empty_one(give: Give, capsys: Output) -> None:
    for file in ("out.json", "out.html"):
        give(b"A dog.\n\xff\n\nA man sees a dog and a man\n")
        assert translate("--n-best", "2", "--alignment", file) == 2
    printed = capsys.readouterr()
    reason = "byte 1 is not UTF-8 text"
    assert f"standard input, line 2: {reason}" in printed.err
    assert "standard input, line 4, is too long: its last 2 tokens are not read" in printed.err
    assert printed.out.splitlines()[2:4] == ["2\t1\t\t\t", "3\t1\t0.0000\t0.0000\t"]
    records = read("out.json")
    assert [record.get("error") for record in records[:3]] == [None, reason, None]
    assert [record["log_probability"] for record in records[1:3]] == [None, 0.0]
    assert records[1]["score"] is None
    assert set(records[1]) == {*records[2], "error"}
    assert "<h2>2. (byte 1 is not UTF-8 text)</h2>" in Path("out.html").read_text()


def test_a_translation_that_is_cut_is_reported(give: Give, capsys: Output) -> None:
    give(b"A dog.\n")
    model = make_model(ends=False)
    assert translate("--n-best", "2", "--alignment", "out.json", model=model) == 0
    assert capsys.readouterr().err.splitlines() == [
        "captioner: standard input, line 1: its translation was cut at 5 tokens",
        "captioner: standard input, line 1: not sure",
    ]
    (record,) = read("out.json")
    assert [each["cut"] for each in (record, *record["alternatives"])] == [True, True]
    terms = [*record["token_log_probabilities"], record["log_probability"]]
    mean = terms[-1] / len(terms)  # A term a token, and the end's.
    assert (record["confidence"], record["sure"]) == (pytest.approx(math.exp(mean)), False)


def test_pictures_come_with_lines_and_missing_ones_named(give: Give, monkeypatch: Patch) -> None:
    said: dict[str, set[str]] = {}

    def note(sentence: str) -> None:
        said[sentence] = {path.name for path in Path().glob("*.png")}

    monkeypatch.setattr("captioner.cli.translate.report", note)
    give(b"A dog.\n\n\xff\nThe dog runs!\n")
    assert translate("--alignment", "map.png") == 2
    empty = "there is no picture map-2.png of line 2: its translation is empty"
    unread = "there is no picture map-3.png of line 3: byte 1 is not UTF-8 text"
    assert said[empty] == said[unread] == {"map.png"}
    assert Path("map-4.png").is_file()


def test_alignments() -> None:
    Path("a-2.html").write_text("A page of its own")
    for file in ("a.json", "a.html", "a.png"):
        assert translate("text", "--alignment", file) == 0
    first, second = read("a.json")
    assert [first["source"], second["source"]] == SOURCE[:2]
    assert first["source_tokens"] == ["a", "man", "sees", "a", "dog", ".", "<end>"]
    assert first["source_words"] == first["source_tokens"]
    assert [len(row) for row in first["alignment"]] == [7] * len(first["tokens"])
    assert len(first["word_alignment"]) == len(first["words"])
    assert "<table>" in Path("a.html").read_text()
    assert translate("text", "--alignment", "pieces.html", "--pieces") == 0
    assert {path.name for path in Path().glob("*.png")} == {"a.png", "a-2.png"}


def test_a_layer_and_a_head() -> None:
    model = make_model("transformer")
    found = []
    for choice in ("", "--layer 0", "--layer 0 --head 1", "--head mean"):
        options = ("--alignment", "a.json", "--overwrite", *choice.split())
        assert translate("text", *options, model=model) == 0
        found.append(read("a.json")[0])
    assert found[0]["translation"] == found[1]["translation"] == found[2]["translation"]
    assert found[0]["alignment"] != found[1]["alignment"] != found[2]["alignment"]
    assert found[3] == found[0]


EVALUATE = ["evaluate-translator", "model", "source", "references", "--json", "scores.json"]


def test_a_file_of_translations(capsys: Output) -> None:
    files = ["score-translations", "found", "references"]
    assert main([*files, "--source", "source", "--json", "scores.json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    bleu = sacrebleu.corpus_bleu(FOUND, [REFERENCES])
    scores = json.loads(Path("scores.json").read_text())
    assert scores["BLEU"] == pytest.approx(bleu.score)
    assert scores["sentences"] == 3
    for signature in scores["signatures"].values():
        assert signature in printed.out
    assert [each["words"] for each in scores["lengths"]] == [[1, 5], [11, 15]]
    assert "11 to 15" in printed.out
    Path("upper.gz").write_bytes(gzip.compress("\n".join(REFERENCES).upper().encode()))
    assert main(["score-translations", "upper.gz", "references", "--lower-case"]) == 0
    assert "100.00" in capsys.readouterr().out


def test_a_model_is_scored_on_what_a_user_would_get(capsys: Output) -> None:
    save_translator(make_translator(SOURCE + REFERENCES), "model")
    assert main([*EVALUATE, "--device", "cpu", "--beam", "2", "--batch-size", "2"]) == 0
    printed = capsys.readouterr()
    with pytest.warns(UserWarning, match="sentence 3 has 12 tokens"):
        found = load_translator("model").translate(SOURCE, beam=2)
    too_long = "source, line 3, is too long: its last 6 tokens are not read"
    assert printed.err.startswith(f"captioner: {too_long}\n")
    wanted = sacrebleu.corpus_chrf([each.text for each in found], [REFERENCES])
    scores = json.loads(Path("scores.json").read_text())
    assert scores["chrF"] == pytest.approx(wanted.score)
    assert scores["truncated"] == 1
    assert scores.get("cut", 0) == sum(each.cut for each in found)
    assert sum(each["sentences"] for each in scores["lengths"]) == 3


def test_empty_references_are_refused_or_skipped(refused: Refused, capsys: Output) -> None:
    save_translator(make_translator(SOURCE + REFERENCES), "model")
    Path("source").write_text("\n".join(["", *SOURCE[1:]]))
    Path("references").write_text("\n".join([REFERENCES[0], "", REFERENCES[2]]))
    assert "references has 1 empty sentence (references, line 2)" in refused(EVALUATE)
    assert main([*EVALUATE, "--on-problem", "skip", "--maximum-length", "1"]) == 2
    said = capsys.readouterr().err
    assert "source, line 3, is too long" in said
    assert "text file references: left out 1 empty sentence (references, line 2)" in said
    assert json.loads(Path("scores.json").read_text())["sentences"] == 2
    assert main(["score-translations", "found", "references", "--on-problem", "skip"]) == 2
