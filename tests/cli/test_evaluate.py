"""`captioner evaluate`, `captioner score` and `captioner maps`: files in, table and files out."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from samples import Output, Patch, imported, save_photo, write_captions, write_instances

from captioner.cli.main import main

VAL = ["evaluate", "tiny-model", "--format", "table", "--annotations", "captions.csv"]
VAL += ["--split", "val"]
FILES = ["score", "results.json", "references.json"]
MAPS = ["maps", "tiny-model", "--images", "photos"]


@pytest.fixture(autouse=True)
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working folder with a model, three photos, captions of them and results to score."""
    monkeypatch.chdir(tmp_path)
    rows = ["image,caption,split"]
    for n in range(3):
        save_photo(tmp_path / f"photos/{n}.png", n)
        rows += [f"photos/{n}.png,a brown dog runs,val", f"photos/{n}.png,two dogs number {n},val"]
    (tmp_path / "captions.csv").write_text("\n".join([*rows, "9.png,a red dog,train"]))
    captions = {n: [f"a dog number {n} runs", "a brown dog on grass"] for n in range(4)}
    write_captions(tmp_path / "references.json", captions)
    for name, verb, count in (("results", "runs", 3), ("other", "sits", 3), ("one", "runs", 1)):
        records = [{"image_id": n, "caption": f"a dog number {n} {verb}"} for n in range(count)]
        (tmp_path / f"{name}.json").write_text(json.dumps(records))
    return tmp_path


def read(path: str) -> dict[str, Any]:
    return json.loads(Path(path).read_text())  # type: ignore[no-any-return]


def rows_of(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def test_kept_captions_score_the_same(capsys: Output) -> None:
    assert main([*VAL, "--save-results", "kept.json", "--json", "of_model.json"]) == 0
    kept = json.loads(Path("kept.json").read_text())
    assert [record["image_id"] for record in kept] == [f"photos/{n}.png" for n in range(3)]
    of_table = ["captions.csv", "--format", "table", "--split", "val"]
    of_table += ["--training-captions", "captions.csv", "--json", "s.json"]
    assert main(["score", "kept.json", *of_table, "--against", "kept.json"]) == 0
    first, second = read("of_model.json"), read("s.json")
    assert first.keys() < second.keys()
    differing = {name for name in first if second[name] != first[name]}
    assert differing == {"diversity"}
    assert second["diversity"]["seen_in_training"] == 0
    *_, last = (line for line in capsys.readouterr().out.splitlines() if "CIDEr-D" in line)
    assert last.split()[3:] == ["0.0000", "[0.0000,", "0.0000]", "1.0000"]


@pytest.mark.parametrize("command", ["evaluate", "maps"])
def test_generated_shapes(command: str, capsys: Output) -> None:
    shapes = [command, "tiny-model", "--format", "shapes", "--count", "4", "--json", "s.json"]
    assert main(shapes) == 0
    printed = capsys.readouterr().out
    scores = read("s.json")
    if command == "evaluate":
        assert "exact match" in printed
        assert (scores["images"], scores["exact match"]) == (4, 0)
    else:
        assert scores["photos"] == 4
        assert scores["grounded"]["words"] == 0  # The model knows no word of the shapes.
        assert "words with a target  0" in printed
        assert "uniform -" in printed


@pytest.mark.parametrize("command", [VAL, MAPS])
def test_unreadable_photos_and_records_are_refused_or_left_out(
    command: list[str], capsys: Output
) -> None:
    Path("photos/1.png").write_bytes(b"not a photo")
    assert main(command) == 2
    assert capsys.readouterr().err.endswith(" (--on-problem skip leaves it out)\n")
    assert main([*command, "--on-problem", "skip", "--json", "s.json"]) == 2
    errors = capsys.readouterr().err
    assert "1.png is not an image" in errors
    assert "1 of 3 photos could not be read and do not count" in errors
    assert read("s.json")["images" if command is VAL else "photos"] == 2


def test_everything_about_a_results_file(capsys: Output) -> None:
    arguments = [*FILES, "--confidence", "--against", "other.json"]
    arguments += ["--training-captions", "references.json"]
    assert main([*arguments, "--json", "s.json", "--csv", "s.csv"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "references without caption  1" in printed.out
    assert "in brackets                 0.9500  confidence, 1,000 bootstrap" in printed.out
    assert "second: other.json" in printed.out
    assert "NOTE: 3 images are too few for intervals and p values" in printed.out
    scores = read("s.json")
    assert scores["references_without_caption"] == 1
    assert scores["confidence"] == 0.95
    difference = scores["comparison"]["scores"]["BLEU-1"]
    assert difference["difference"] == pytest.approx(1 / 5)
    assert scores["diversity"]["seen_in_training"] == 1
    assert [row["image_id"] for row in rows_of("s.csv")] == ["0", "1", "2"]


def test_scoring_a_file_brings_no_library_that_models_need() -> None:
    code = f"from captioner.cli.main import main; assert main({FILES!r}) == 0"
    assert imported(code, "torch", "matplotlib") == []


def test_the_maps_of_any_photos(capsys: Output) -> None:
    assert main([*MAPS, "--json", "s.json", "--csv", "words.csv"]) == 0
    assert "with a target" not in capsys.readouterr().out
    found = read("s.json")
    assert found["photos"] == 3
    assert found["grounded"] is None
    assert len(rows_of("words.csv")) == found["words"]


def test_the_maps_of_a_data_set_with_instances(capsys: Output) -> None:
    """A dog and a person over the whole of photo 0; nothing elsewhere."""
    write_captions(Path("of_photos.json"), {n: ["a dog"] for n in range(3)})
    things = {0: ["person", "dog"], 1: []}
    write_instances(Path("i.json"), things, ["person", "dog"], size=(120, 90))
    # So that dogs and men are named:
    samples = ["--minimum-length", "8", "--maximum-length", "8"]
    samples += ["--sample", "--temperature", "5", "--seed", "4"]
    data = ["--format", "coco", "--annotations", "of_photos.json", "--instances", "i.json"]
    assert main([*MAPS, *data, *samples, "--json", "s.json"]) == 0
    grounded = read("s.json")["grounded"]
    assert grounded["photos"] == 1
    assert grounded["mass_inside"]["attention"] == pytest.approx(1.0)
    assert grounded["mass_inside"]["uniform"] == pytest.approx(1.0)
    assert "mass inside          attention 1.0000, uniform 1.0000" in capsys.readouterr().out
