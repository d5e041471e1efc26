"""`captioner calibrate`, and what `captioner caption` then says of a picture of noise."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy
import pytest
from PIL import Image, ImageDraw
from samples import Output, Patch, Refused, save_photo

from captioner.cli.main import main

UNSURE = "not sure"


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder with the tiny model and a table of photos that are much alike.

    Of what the model says of them, about half is in their captions.
    """
    rows = ["image,caption,split"]
    (tmp_path / "photos").mkdir()
    for number in range(80):
        image = Image.new("RGB", (90, 80), (90, 140, 200))
        place = numpy.random.default_rng(number).integers(10, 50, 2).tolist()
        ImageDraw.Draw(image).ellipse((*place, place[0] + 20, place[1] + 20), fill=(60, 40, 20))
        image.save(tmp_path / "photos" / f"{number}.png")
        split = "val" if number % 2 else "train"
        rows.append(f"photos/{number}.png,a brown dog runs on water,{split}")
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = ["calibrate", "tiny-model", "--format", "table", "--annotations"]
COMMAND += ["captions.csv"]
CAPTION = ["caption", "--model", "tiny-model", "noise.png"]


def test_a_model_is_calibrated_and_then_says_when_it_is_not_sure(
    folder: Path, capsys: Output
) -> None:
    noise = numpy.random.default_rng(0).integers(0, 255, (200, 300, 3), numpy.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    assert main(CAPTION) == 0
    before = capsys.readouterr().out.strip()
    assert main([*COMMAND, "--unsure-below", "0.3", "--json", "report.json"]) == 0
    printed = capsys.readouterr().out
    assert "fifth 5" in printed
    assert printed.splitlines()[-1] == "written into tiny-model"
    report = json.loads((folder / "report.json").read_text())
    assert report["splits"]["val"]["photos"] == 40

    assert main([*CAPTION, "photos/1.png", "--json", "out.json", "--csv", "out.csv"]) == 0
    first, _ = capsys.readouterr().out.splitlines()
    assert first == f"noise.png: {before}  ({UNSURE})"
    odd, usual = json.loads((folder / "out.json").read_text())
    assert odd["confidence"] < 0.3
    assert odd["sure"] is False
    assert usual["confidence"] > 0.3
    assert usual["sure"] is True
    rows = list(csv.DictReader((folder / "out.csv").read_text().splitlines()))
    assert [float(row["confidence"]) for row in rows] == [odd["confidence"], usual["confidence"]]
    assert [row["sure"] for row in rows] == ["False", "True"]

    # The sentence stands alone on standard output.
    assert main(CAPTION) == 0
    assert capsys.readouterr() == (f"{before}\n", f"captioner: noise.png: {UNSURE}\n")
    assert main([*CAPTION, "--format", "{doubt}, {confidence:.1f}"]) == 0
    assert capsys.readouterr() == (f"{UNSURE}, {odd['confidence']:.1f}\n", "")
    assert main([*CAPTION, "--n-best", "2"]) == 0
    best, *_ = capsys.readouterr().out.splitlines()
    assert best.endswith(f", {UNSURE})")
    assert main(["info", "tiny-model"]) == 0
    assert "unsure_below: 0.3" in capsys.readouterr().out


def test_nothing_changes_without_a_confidence(folder: Path, capsys: Output) -> None:
    save_photo(folder / "noise.png")
    assert main([*CAPTION, "--json", "o.json", "--csv", "o.csv"]) == 0
    printed = capsys.readouterr()
    assert "not sure" not in printed.out + printed.err
    (record,) = json.loads((folder / "o.json").read_text())
    assert not {"confidence", "sure"} & record.keys()
    header = (folder / "o.csv").read_text().splitlines()[0]
    assert header == "image,rank,caption,log_probability,score,model,bytes,modified"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--split", "test"], "has no split 'test'"),
        (["--split", "train"], "40 photos of train are training photos"),
        (["--unsure-below", "3"], "--unsure-below 3.0 is not at most 1"),
        (["--json", "captions.csv"], "--json captions.csv exists; --overwrite replaces it"),
        (["--json", "tiny-model/config.json"], "--json tiny-model/config.json exists"),
        (["--format", "coco"], "needs the folder of the photos"),
    ],
)
def test_a_mistake_is_one_sentence_and_the_model_stays(
    arguments: list[str], named: str, folder: Path, refused: Refused
) -> None:
    before = {path.name: path.read_bytes() for path in (folder / "tiny-model").iterdir()}
    assert named in refused([*COMMAND, *arguments])
    after = {path.name: path.read_bytes() for path in (folder / "tiny-model").iterdir()}
    assert after == before


def test_a_packaged_model_stays_as_it_is(refused: Refused) -> None:
    assert "default is in the package" in refused([COMMAND[0], "default", *COMMAND[2:]])


def test_records_that_cannot_be_used_are_left_out_if_asked(folder: Path, capsys: Output) -> None:
    with (folder / "captions.csv").open("a") as table:
        table.write("\nphotos/gone.png,a dog,val\nphotos/1.png,,val\n")
    assert main(COMMAND) == 2
    assert "(--on-problem skip" in capsys.readouterr().err
    assert main([*COMMAND, "--on-problem", "skip"]) == 2
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "written into tiny-model"
    assert printed.err.count("left out 1 empty caption (line 83 has no words), 1 missing") == 1


def test_a_photo_that_cannot_be_read_is_named(folder: Path, capsys: Output) -> None:
    (folder / "photos" / "3.png").write_bytes(b"not a photo")
    assert main(COMMAND) == 2
    assert "3.png" in capsys.readouterr().err.splitlines()[-1]
