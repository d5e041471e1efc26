"""`captioner calibrate`, and what `captioner caption` then says of captions it is not sure of."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples import CAPTION, Output, Patch, confidence_weights, make_captioner, save_photo

from captioner.caption.caption import Caption
from captioner.caption.confidence import Confidence, WordWeights
from captioner.caption.folder import save_model
from captioner.cli.caption import print_captions
from captioner.cli.main import build_parser, main
from captioner.evaluation.score import write_results


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """The current folder, with the tiny model and a table of photos."""
    monkeypatch.chdir(tmp_path)
    rows = ["image,caption,split"]
    for number in range(40):
        photo = save_photo(Path("photos", f"{number}.png"), number)
        rows.append(f"{photo},a brown dog runs on water,val")
    Path("captions.csv").write_text("\n".join(rows))
    return tmp_path


COMMAND = ["calibrate", "tiny-model", "--format", "table", "--annotations", "captions.csv"]


def test_lines_and_records_say_which_captions_are_not_sure(folder: Path, capsys: Output) -> None:
    assert main([*COMMAND, "--json", "report.json"]) == 0
    printed = capsys.readouterr().out
    assert "fifth 5" in printed
    assert printed.splitlines()[-1] == "written into tiny-model"
    assert json.loads(Path("report.json").read_text())["splits"]["val"]["photos"] == 40
    assert main([*CAPTION, "photos", "--quiet", "--json", "before.json"]) == 0
    records = json.loads(Path("before.json").read_text())
    low, *_, high = sorted(records, key=lambda record: record["confidence"])
    limit = round((low["confidence"] + high["confidence"]) / 2, 4)
    assert main([*COMMAND, "--unsure-below", str(limit)]) == 0
    assert main(["info", "tiny-model"]) == 0
    assert f"unsure_below: {limit}" in capsys.readouterr().out
    assert main(["info"]) == 0
    assert "words.position: " in (shown := capsys.readouterr().out)
    assert "words.offsets" not in shown
    alone = [*CAPTION, low["image"]]
    assert main([*alone, high["image"], "--json", "out.json"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{low['image']}: {low['caption']}  (not sure)",
        f"{high['image']}: {high['caption']}",
    ]
    assert [each["sure"] for each in json.loads(Path("out.json").read_text())] == [False, True]
    # The sentence of one photo stands alone.
    assert main(alone) == 0
    doubt = f"captioner: {low['image']}: not sure\n"
    assert capsys.readouterr() == (f"{low['caption']}\n", doubt)
    assert main([*alone, "--format", "{doubt}, {confidence:.2f}"]) == 0
    assert capsys.readouterr() == (f"not sure, {low['confidence']:.2f}\n", "")


def test_what_speaks_against_a_calibration_is_reported(folder: Path, capsys: Output) -> None:
    """Photos that chose the epoch, one that cannot be read, captions that change."""
    Path("run").mkdir()
    Path("tiny-model").rename("run/model")
    config = Path("run/model/config.json")
    config.write_text(config.read_text().replace('"truth_weight": 0.0', '"truth_weight": 1.0'))
    Path("photos/0.png").write_bytes(b"no photo")
    photos = {f"photos/{number}.png": "a dog" for number in (1, 2, 3)}
    write_results(Path("run/results.json"), photos)
    assert main(["calibrate", "run", *COMMAND[2:], "--split", "--on-problem", "skip"]) == 2
    errors = capsys.readouterr().err
    assert "3 photos of all chose the epoch of this model: its confidence may be too" in errors
    assert "1 of 40 photos could not be read and do not count" in errors
    assert errors.endswith("choose other captions now (truth_weight): score them anew\n")


@pytest.mark.parametrize("options", [[], ["--cautious"]])
def test_tables_have_the_confidence_of_words(tmp_path: Path, options: list[str]) -> None:
    model = make_captioner()
    words = WordWeights(intercept=-1, probability=3, caption=0.5, both=0.1)
    weights = confidence_weights(1.0, 0.5, 0.75, 0.25, -0.125)
    model.confidence = Confidence(weights=weights, words=words)
    save_model(model, tmp_path / "model")
    photo, table, records = (str(tmp_path / name) for name in ("a.png", "a.csv", "a.json"))
    save_photo(Path(photo))
    command = ["caption", photo, "--model", str(tmp_path / "model"), "--csv", table]
    assert main([*command, "--json", records, *options]) == 0
    (record,) = json.loads(Path(records).read_text(encoding="utf-8"))
    pairs = zip(record["words"], record["word_confidence"], strict=True)
    with open(table, encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    said = [f"{word} {score:.2f}" for word, score in pairs if score is not None]
    assert row["word_confidence"] == ", ".join(said) != ""


@pytest.mark.parametrize(
    ("language", "doubt"), [(None, "not sure"), ("de", "nicht sicher"), ("fr-CA", "incertain")]
)
def test_a_line_names_doubt_in_the_language_of_its_caption(
    language: str | None, doubt: str, capsys: Output
) -> None:
    caption = Caption("chat", ("chat",), -1.0, (-0.5,), np.ones((1, 1, 1)), sure=False)
    caption = replace(caption, language=language)
    arguments = build_parser().parse_args(["caption", "a.jpg"])
    print_captions(replace(caption, name="a.jpg"), arguments, is_alone=False)
    assert capsys.readouterr() == (f"a.jpg: chat  ({doubt})\n", "")
    print_captions(replace(caption, name="a.jpg"), arguments, is_alone=True)
    assert capsys.readouterr() == ("chat\n", f"captioner: a.jpg: {doubt}\n")
