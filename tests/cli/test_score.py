"""`captioner score`: files in, table and files out."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from coco_samples import write_captions
from samples import Output, Patch, Refused

import captioner
from captioner.cli import score
from captioner.cli.main import main

FILES = ["score", "results.json", "references.json"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working folder with results and references."""
    captions = {n: [f"a dog number {n} runs", "a brown dog on grass"] for n in range(4)}
    write_captions(tmp_path / "references.json", captions)
    for name, verb, count in (("results", "runs", 3), ("other", "sits", 3), ("one", "runs", 1)):
        records = [{"image_id": n, "caption": f"a dog number {n} {verb}"} for n in range(count)]
        (tmp_path / f"{name}.json").write_text(json.dumps(records))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_everything_about_a_results_file(folder: Path, capsys: Output) -> None:
    arguments = [*FILES, "--confidence", "--against", "other.json"]
    arguments += ["--training-captions", "references.json"]
    arguments += ["--json", "s.json", "--csv", "s.csv"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "1       more images that have references" in printed.out
    assert "seen in training   1.0000" in printed.out
    assert "second: other.json" in printed.out
    scores = json.loads((folder / "s.json").read_text())
    assert scores["references_without_caption"] == 1
    assert scores["confidence"] == 0.95
    assert scores["intervals"]["BLEU-1"] == pytest.approx([1, 1])
    difference = scores["comparison"]["scores"]["BLEU-1"]
    assert difference["difference"] == pytest.approx(1 / 5)
    assert difference["p_bootstrap"] == pytest.approx(2 / 1001)
    assert scores["diversity"]["seen_in_training"] == 1
    rows = csv.DictReader((folder / "s.csv").read_text().splitlines())
    assert [row["image_id"] for row in rows] == ["0", "1", "2"]


def test_a_single_image(folder: Path, capsys: Output, refused: Refused) -> None:
    one = ["score", "one.json", "references.json"]
    assert "--document-frequency FILE" in refused(one)
    assert main([*one, "--metrics", "BLEU", "ROUGE-L"]) == 0
    assert "CIDEr-D" not in capsys.readouterr().out
    assert main([*one, "--document-frequency", "references.json"]) == 0
    assert "4       images of the document frequency" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["score", "results.json", "absent.json"], "absent.json"),
        ([*FILES, "--confidence", "95"], "confidence 95.0 is not between 0 and 1"),
        ([*FILES, "--synonyms", "s.txt"], "--synonyms has no meaning without --instances"),
        ([*FILES, "--instances", "absent.json"], "absent.json"),
        ([*FILES, "--metrics", "BLEU", "--document-frequency", "d"], "--document-frequency has no"),
        ([*FILES, "--training-captions", "absent.json"], "absent.json"),
        ([*FILES, "--against", "one.json"], "results.json and one.json differ in 2, image 1"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, folder: Path, refused: Refused
) -> None:
    before = {path.name for path in folder.iterdir()}
    assert sentence in refused(arguments)
    assert {path.name for path in folder.iterdir()} == before


def test_outputs_are_tried_one_and_all(folder: Path, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(score, "check_outputs", lambda *_: None)  # As if it came later.
    for name in ("s.json", "s.csv"):
        (folder / name).mkdir()
    files = [*FILES, "--json", "s.json", "--csv", "s.csv"]
    assert main(files) == 2
    printed = capsys.readouterr()
    (sentence,) = printed.err.splitlines()
    assert all(f"cannot write {name}" in sentence for name in ("s.json", "s.csv"))
    assert "BLEU-1" in printed.out


def test_scoring_a_file_brings_no_library_that_models_need(folder: Path) -> None:
    script = (
        "import sys; from captioner.cli.main import main; "
        f"code = main({FILES!r}); "
        "print(code, [name for name in ('torch', 'matplotlib') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(captioner.__file__).parents[1])}
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (run.stderr, run.stdout.splitlines()[-1:]) == ("", ["0 []"])
