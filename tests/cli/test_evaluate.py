"""`captioner evaluate`: a model on a data set."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import get_args

import pytest
from samples import Output, Patch, Refused, save_photo

from captioner.cli.main import main
from captioner.cli.photo_data import FORMATS
from captioner.runs.captioning_recipe import DataConfig

MODEL = ["evaluate", "tiny-model", "--format", "table", "--annotations", "captions.csv"]
VAL = [*MODEL, "--split", "val"]


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working folder with three photos, a table of their captions and a model."""
    rows = ["image,caption,split"]
    for n in range(3):
        save_photo(tmp_path / f"{n}.png", n)
        rows += [f"{n}.png,a brown dog runs,val", f"{n}.png,two red dogs number {n},val"]
    (tmp_path / "captions.csv").write_text("\n".join([*rows, "9.png,a red dog,train"]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_photos_are_scored(folder: Path) -> None:
    arguments = [*VAL, "--json", "s.json", "--csv", "s.csv", "--count", "2"]
    assert main([*arguments, "--confidence", "0.8"]) == 0
    scores = json.loads(Path("s.json").read_text())
    assert scores["images"] == 2
    assert scores["confidence"] == 0.8
    assert "exact match" not in scores
    rows = csv.DictReader(Path("s.csv").read_text().splitlines())
    assert [row["image_id"] for row in rows] == ["0.png", "1.png"]


def test_kept_captions_score_the_same(folder: Path, capsys: Output) -> None:
    assert main([*VAL, "--save-results", "kept.json", "--json", "of_model.json"]) == 0
    kept = json.loads(Path("kept.json").read_text())
    assert [record["image_id"] for record in kept] == ["0.png", "1.png", "2.png"]
    of_table = ["captions.csv", "--format", "table", "--split", "val"]
    of_table += ["--training-captions", "captions.csv", "--json", "s.json"]
    assert main(["score", "kept.json", *of_table, "--against", "kept.json"]) == 0
    first, second = (json.loads(Path(f"{n}.json").read_text()) for n in ("of_model", "s"))
    assert first.keys() < second.keys()
    assert all(second[name] == first[name] for name in first if name != "diversity")
    assert second["diversity"]["seen_in_training"] == 0
    last = capsys.readouterr().out.splitlines()[-4].split()
    assert (last[0], last[3:]) == ("CIDEr-D", ["0.0000", "[0.0000,", "0.0000]", "1.0000"])


def test_generated_shapes(folder: Path, capsys: Output) -> None:
    shapes = ["evaluate", "tiny-model", "--format", "shapes", "--count", "4", "--json", "s.json"]
    assert main(shapes) == 0
    assert "exact match         0.0000" in capsys.readouterr().out
    scores = json.loads(Path("s.json").read_text())
    assert (scores["images"], scores["exact match"]) == (4, 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["evaluate", "tiny-model"], "give the data set: --format"),
        (["evaluate", "tiny-model", "--format", "coco"], "--format coco needs --annotations"),
        (["evaluate", "tiny-model", "--format", "shapes", "--split", "val"], "--split has no"),
        ([*VAL, "--seed", "3"], "--seed has no meaning without --sample"),
        ([*VAL, "--json", "x", "--save-results", "./x"], "--json and --save-results are the same"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, folder: Path, refused: Refused
) -> None:
    before = {path.name for path in folder.iterdir()}
    assert sentence in refused(arguments)
    assert {path.name for path in folder.iterdir()} == before


def test_what_cannot_be_read_is_left_out_on_request(folder: Path, capsys: Output) -> None:
    Path("1.png").write_bytes(b"not a photo")
    skip = [*VAL, "--on-problem", "skip", "--json", "s.json"]
    assert main(skip) == 2
    printed = capsys.readouterr()
    assert "1.png is not an image" in printed.err
    assert "1 of 3 photos could not be read and do not count" in printed.err
    assert "BLEU-1" in printed.out
    assert json.loads(Path("s.json").read_text())["images"] == 2
    save_photo(Path("1.png"))
    with Path("captions.csv").open("a") as file:
        file.write("\nonly one cell")
    assert main([*skip, "--overwrite"]) == 2
    printed = capsys.readouterr()
    assert "line 9 has 1 cells" in printed.err
    assert "BLEU-1" in printed.out


def test_the_formats_are_those_of_training() -> None:
    assert get_args(DataConfig.model_fields["format"].annotation) == FORMATS
