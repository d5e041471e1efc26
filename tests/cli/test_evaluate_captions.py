"""`captioner evaluate` for captions: files in, table and files out, one sentence for a mistake."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import save_photo

import captioner
from captioner.cli import evaluate, evaluate_captions
from captioner.cli.main import main
from captioner.evaluation.captions import DEFAULT_METRICS, METRICS

FILES = ["--results", "results.json", "--references", "references.json"]
MODEL = ["--model", "tiny-model", "--format", "table", "--annotations", "captions.csv"]


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with results, references, photos, a table of them and a model."""
    annotations = [
        {"id": 2 * n + i, "image_id": n, "caption": text}
        for n in range(4)
        for i, text in enumerate((f"a dog number {n} runs", "a brown dog on grass"))
    ]
    images = [{"id": n, "file_name": f"{n}.png"} for n in range(4)]
    references = {"images": images, "annotations": annotations}
    (tmp_path / "references.json").write_text(json.dumps(references))
    for name, verb, count in (("results", "runs", 3), ("other", "sits", 3), ("one", "runs", 1)):
        records = [{"image_id": n, "caption": f"a dog number {n} {verb}"} for n in range(count)]
        (tmp_path / f"{name}.json").write_text(json.dumps(records))
    rows = ["image,caption,split"]
    for n in range(3):
        save_photo(tmp_path / f"{n}.png", n)
        rows += [f"{n}.png,a brown dog runs,val", f"{n}.png,two red dogs number {n},val"]
    (tmp_path / "captions.csv").write_text("\n".join([*rows, "9.png,a red dog,train"]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_metrics_are_those_there_are() -> None:
    assert evaluate_captions.METRICS == METRICS
    assert evaluate_captions.DEFAULT_METRICS == DEFAULT_METRICS


def test_everything_about_a_results_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "2.png").unlink()
    arguments = [*FILES, "--confidence", "--against", "other.json", "--resamples", "50"]
    arguments += ["--training-captions", "references.json", "--images", "."]
    arguments += ["--json", "s.json", "--csv", "s.csv", "--page", "s.html", "--page-by", "BLEU-2"]
    assert main(["evaluate", *arguments]) == 2  # For the photo that the page lacks.
    printed = capsys.readouterr()
    assert printed.err == "captioner: 2.png does not exist\n"
    assert "not captioned   1 more images that have references" in printed.out
    assert "seen in training    1.0000" in printed.out
    assert "second: other.json" in printed.out
    scores = json.loads((folder / "s.json").read_text())
    assert scores["references_without_caption"] == 1
    assert scores["resampling"] == {"resamples": 50, "confidence": 0.95, "seed": 0}
    assert scores["intervals"]["BLEU-1"] == pytest.approx([1, 1])
    difference = scores["comparison"]["scores"]["BLEU-1"]
    assert difference["difference"] == pytest.approx(1 / 5)
    assert difference["p_bootstrap"] == pytest.approx(2 / 51)
    assert scores["diversity"]["seen_in_training"] == 1
    with (folder / "s.csv").open() as file:
        assert [row["image_id"] for row in csv.DictReader(file)] == ["0", "1", "2"]
    page = (folder / "s.html").read_text()
    assert "by BLEU-2 of each image" in page
    assert page.count("<img ") == 2


def test_everything_about_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*MODEL, "--split", "val", "--save-results", "kept.json", "--json", "s.json"]
    arguments += ["--training-captions", "captions.csv", "--page", "s.html", "--confidence", "0.8"]
    assert main(["evaluate", *arguments]) == 0
    scores = json.loads((folder / "s.json").read_text())
    assert scores["diversity"]["seen_in_training"] == 0
    assert scores["resampling"]["confidence"] == 0.8
    assert (folder / "s.html").read_text().count("<img ") == 3
    assert main(["evaluate", *MODEL, "--split", "val", "--against", "kept.json"]) == 0
    last = capsys.readouterr().out.splitlines()[-3].split()
    assert (last[0], last[3:]) == ("CIDEr-D", ["+0.0000", "[+0.0000,", "+0.0000]", *["1.0000"] * 2])


def test_a_single_image(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = ["evaluate", "--results", "one.json", "--references", "references.json"]
    assert main(one) == 2
    assert "--document-frequency FILE" in capsys.readouterr().err
    assert main([*one, "--metrics", "BLEU", "ROUGE-L"]) == 0
    assert "CIDEr-D" not in capsys.readouterr().out
    counted = ["--references", "references.json", "--write-document-frequency", "df.json"]
    assert main(["evaluate", *counted]) == 0
    assert capsys.readouterr().out == "df.json: document frequency of 4 images\n"
    assert main([*one, "--document-frequency", "df.json"]) == 0
    assert "rarity          document frequency of 4 images (df.json)" in capsys.readouterr().out


def test_counting_and_scoring_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", *FILES, "--write-document-frequency", "df.json"]) == 0
    assert capsys.readouterr().out.startswith("df.json: document frequency of 4 images\nBLEU-1")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--references", "references.json"], "give --results and --references together"),
        (["--references", "r", "--write-document-frequency", "d", "--csv", "c"], "--csv has no me"),
        ([*FILES, "--images", "."], "--images has no meaning where --results are scored without"),
        ([*FILES, "--save-results", "x"], "--save-results has no meaning"),
        ([*FILES, "--format", "shapes"], "--format shapes has no meaning with --references"),
        ([*FILES, "--resamples", "9"], "--resamples has no meaning without --confidence or"),
        ([*FILES, "--resampling-seed", "9"], "--resampling-seed has no meaning without"),
        ([*FILES, "--confidence", "95"], "confidence 95.0 is not between 0 and 1"),
        ([*FILES, "--confidence", "--resamples", "0"], "number of resamples 0"),
        ([*FILES, "--page-by", "BLEU-1"], "--page-by has no meaning without --page"),
        ([*FILES, "--page", "p.html", "--page-by", "METEOR"], "cannot be ranked by 'METEOR'"),
        ([*FILES, "--page", "p.html", "--page-count", "0"], "0, is not at least 1"),
        ([*FILES, "--synonyms", "s.txt"], "--synonyms has no meaning without --instances"),
        ([*FILES, "--instances", "absent.json"], "absent.json"),
        ([*FILES, "--metrics", "BLEU", "--document-frequency", "d"], "--document-frequency has no"),
        ([*FILES, "--document-frequency", "absent.json"], "absent.json"),
        ([*FILES, "--training-captions", "absent.json"], "absent.json"),
        ([*FILES, "--against", "one.json"], "one.json lacks 2 of results.json"),
        ([*FILES, "--json", "x", "--csv", "./x"], "--json and --csv are the same file"),
        ([*FILES, "--json", "references.json"], "--references and --json are the same file"),
        ([*FILES, "--csv", ""], "--csv is empty"),
        (
            [*FILES, "--csv", "results.json/x.csv"],
            "--csv results.json/x.csv needs results.json to be a folder",
        ),
        ([*FILES, "--count", "3"], "--count has no meaning without --maps"),
        ([*MODEL, "--write-document-frequency", "d"], "--write-document-frequency has no meaning"),
        (
            [*MODEL, "--split", "val", "--against", "other.json"],
            "only the same images can be compared",
        ),
        (
            ["--model", "tiny-model", "--format", "shapes", "--csv", "c"],
            "--csv has no meaning with",
        ),
        (
            ["--maps", "--model", "tiny-model", "--format", "shapes", "--metrics", "BLEU"],
            "--metrics",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in folder.iterdir()}
    assert main(["evaluate", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.startswith("captioner: ")
    assert len(error.splitlines()) == 1
    assert {path.name for path in folder.iterdir()} == before


def test_a_page_of_which_every_photo_is_there(folder: Path) -> None:
    assert main(["evaluate", *FILES, "--images", ".", "--page", "s.html"]) == 0


def test_captions_of_which_one_cannot_be_scored_are_not_all_well(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "1.png").write_bytes(b"not a photo")
    arguments = [*MODEL, "--split", "val", "--on-problem", "skip", "--json", "s.json"]
    assert main(["evaluate", *arguments]) == 2
    printed = capsys.readouterr()
    assert "1.png is not an image" in printed.err
    assert "1 of 3 photos could not be read and do not count" in printed.err
    assert "BLEU-1" in printed.out
    assert json.loads((folder / "s.json").read_text())["images"] == 2


def test_a_record_that_is_left_out_is_not_all_well(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "captions.csv").open("a") as file:
        file.write("\nonly one cell")
    arguments = [*MODEL, "--split", "val", "--on-problem", "skip"]
    assert main(["evaluate", *arguments]) == 2
    printed = capsys.readouterr()
    assert "line 9 has 1 cells" in printed.err
    assert "BLEU-1" in printed.out


def test_outputs_are_tried_one_and_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate, "check_files", lambda arguments: None)  # As if it came later.
    for name in ("df.json", "s.json", "s.html", "kept.json"):
        (folder / name).mkdir()
    files = [*FILES, "--write-document-frequency", "df.json", "--json", "s.json"]
    assert main(["evaluate", *files, "--page", "s.html", "--csv", "s.csv"]) == 2
    printed = capsys.readouterr()
    (sentence,) = printed.err.splitlines()
    assert all(f"cannot write {name}" in sentence for name in ("df.json", "s.json", "s.html"))
    assert "BLEU-1" in printed.out
    assert len((folder / "s.csv").read_text().splitlines()) == 4
    model = [*MODEL, "--split", "val", "--save-results", "kept.json", "--csv", "of_model.csv"]
    assert main(["evaluate", *model]) == 2
    assert "cannot write kept.json" in capsys.readouterr().err
    assert len((folder / "of_model.csv").read_text().splitlines()) == 4


def test_one_mistake_that_two_outputs_meet_is_told_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--results", "results.json", "--references", "absent.json"]
    assert main(["evaluate", *files, "--write-document-frequency", "df.json"]) == 2
    assert capsys.readouterr().err.count("absent.json") == 1


def test_scoring_a_file_brings_no_library_that_models_need(folder: Path) -> None:
    script = (
        "import sys; from captioner.cli.main import main; "
        f"code = main(['evaluate', *{FILES!r}]); "
        "print(code, [name for name in ('torch', 'matplotlib') if name in sys.modules])"
    )
    package = Path(captioner.__file__).parent
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
    )
    assert (run.stderr, run.stdout.splitlines()[-1:]) == ("", ["0 []"])
