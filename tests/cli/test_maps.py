"""`captioner maps` as a user meets it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from coco_samples import write_captions, write_instances
from samples import Output, Refused, save_photo

from captioner.cli.main import main


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for number in range(3):
        save_photo(folder / f"{number}.png", number)
    return folder


def test_the_maps_of_any_photos(
    tiny_model: Path, photos: Path, tmp_path: Path, capsys: Output
) -> None:
    scores, words = (tmp_path / name for name in ("s.json", "words.csv"))
    arguments = ["maps", str(tiny_model), "--images", str(photos)]
    arguments += ["--json", str(scores), "--csv", str(words)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "with a target" not in printed
    found = json.loads(scores.read_text())
    assert found["photos"] == 3
    assert found["grounded"] is None
    assert len(list(csv.DictReader(words.read_text().splitlines()))) == found["words"]


def test_the_maps_of_generated_shapes(tiny_model: Path, tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "scores.json"
    arguments = ["--format", "shapes", "--count", "4", "--json", str(out)]
    assert main(["maps", str(tiny_model), *arguments]) == 0
    assert "exact match" in capsys.readouterr().out
    scores = json.loads(out.read_text())
    assert (scores["photos"], scores["exact"]) == (4, 0.0)
    assert scores["grounded"]["words"] == 0  # The model knows not one of the shapes' words.


SAMPLES = ["--minimum-length", "8", "--maximum-length", "8"]
SAMPLES += ["--sample", "--temperature", "5", "--seed", "4"]  # So that dogs and men are named.


def test_the_maps_of_a_data_set_with_instances(
    tiny_model: Path, photos: Path, tmp_path: Path, capsys: Output
) -> None:
    """A dog and a person over the whole of photo 0; nothing elsewhere."""
    captions = write_captions(tmp_path / "captions.json", {n: ["a dog"] for n in range(3)})
    things = {0: ["person", "dog"], 1: []}
    instances = write_instances(tmp_path / "i.json", things, ["person", "dog"], size=(120, 90))
    out = tmp_path / "scores.json"
    arguments = ["maps", str(tiny_model), "--format", "coco", "--annotations", str(captions)]
    arguments += ["--images", str(photos), "--json", str(out)]
    assert main([*arguments, *SAMPLES, "--instances", str(instances)]) == 0
    grounded = json.loads(out.read_text())["grounded"]
    assert grounded["photos"] == 1
    assert grounded["mass_inside"]["attention"] == pytest.approx(1.0)
    assert grounded["mass_inside"]["uniform"] == pytest.approx(1.0)
    assert set(grounded["by_word"]) <= {"dog", "man"}
    assert "even attention" in capsys.readouterr().out


def test_a_bad_photo_is_refused_or_passed_over(
    tiny_model: Path, photos: Path, capsys: Output
) -> None:
    (photos / "1.png").write_bytes(b"not a photo")
    arguments = ["maps", str(tiny_model), "--images", str(photos)]
    assert main(arguments) == 2
    assert "1.png is not an image" in capsys.readouterr().err
    assert main([*arguments, "--on-problem", "skip"]) == 2
    errors = capsys.readouterr().err
    assert "1.png is not an image" in errors
    assert "1 of 3 photos could not be read" in errors


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("", "a data set (--format), or photos (--images)"),
        ("--images absent", "absent"),
        ("--images . --instances i", "--instances has no meaning"),
        ("--images . --synonyms i", "--synonyms has no meaning"),
        ("--images . --count 0", "--count 0"),
        ("--format shapes --images .", "--images has no meaning"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: str, named: str, refused: Refused
) -> None:
    assert named in refused(["maps", "tiny-model", *arguments.split()])
