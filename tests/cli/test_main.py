"""The command line as a user meets it: exit codes, sentences, files."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from samples import save_photo

from captioner.cli.main import build_parser, main

COMMANDS = ("caption", "train", "evaluate", "features", "info")


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)
    assert "captioner caption --demo" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"captioner {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_the_help_are_valid(command: str) -> None:
    parser = build_parser()
    module = sys.modules[f"captioner.cli.{command}"]
    text = module.DESCRIPTION.replace("\\\n", " ")
    examples = [line.split("|")[-1] for line in text.splitlines() if f"captioner {command}" in line]
    assert examples
    for example in examples:
        words = example.split("  ")
        line = " ".join(part for part in words if part.strip())
        arguments = line.split("captioner ", 1)[1].split()
        # A comment behind an example is prose; it begins where the example's words end.
        known, _ = parser.parse_known_args(arguments)
        assert known.run is module.run


def test_a_photo_is_captioned(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = save_photo(tmp_path / "photo.jpg")
    out = tmp_path / "out.json"
    code = main(["caption", str(photo), "--model", str(tiny_model), "--json", str(out)])
    assert code == 0
    (record,) = json.loads(out.read_text())
    assert capsys.readouterr().out == f"{photo}: {record['caption']}\n"
    assert record["image"] == str(photo)


def test_a_bad_photo_in_a_folder(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        save_photo(tmp_path / "photos" / f"{number}.png", number)
    (tmp_path / "photos" / "1.png").write_bytes(b"")
    out = tmp_path / "out.json"
    code = main(
        ["caption", str(tmp_path / "photos"), "--model", str(tiny_model), "--json", str(out)]
    )
    assert code == 2
    printed = capsys.readouterr()
    assert "1.png" in printed.err
    assert "Traceback" not in printed.err
    assert [Path(record["image"]).name for record in json.loads(out.read_text())] == [
        "0.png",
        "2.png",
    ]
    assert len(printed.out.splitlines()) == 2


def test_a_list_on_standard_input(
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    photos = [save_photo(tmp_path / f"{n} with spaces.png", n) for n in range(2)]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{photo}\n" for photo in photos)))
    assert main(["caption", "-", "--model", str(tiny_model)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [str(photo) for photo in photos]


def test_n_best_prints_as_many_captions(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = save_photo(tmp_path / "photo.jpg")
    assert main(["caption", str(photo), "--model", str(tiny_model), "--n-best", "4"]) == 0
    assert len(set(capsys.readouterr().out.splitlines())) == 4


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["caption"], "name a photo"),
        (["caption", "PHOTO", "--beam", "0"], "beam size 0"),
        (["caption", "PHOTO", "--n-best", "5", "--beam", "2"], "n-best 5"),
        (["caption", "PHOTO", "--batch-size", "0"], "--batch-size 0"),
        (["caption", "PHOTO", "--device", "tpu7"], "tpu7"),
        (["caption", "PHOTO", "--strength", "3"], "strength 3"),
        (["caption", "PHOTO", "--sample", "--top-p", "1.5"], "top-p 1.5"),
        (["train", "absent.yaml"], "absent.yaml"),
        (["features", "absent.yaml", "--out", "x"], "absent.yaml"),
        (["evaluate"], "--results"),
        (["evaluate", "--model", "M", "--format", "csv", "--annotations", "a"], "csv"),
        (["evaluate", "--model", "M", "--format", "coco", "--annotations", "a"], "photos"),
        (["evaluate", "--results", "a.json", "--references", "absent.json"], "a.json"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    named: str,
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    photo = save_photo(tmp_path / "photo.jpg")
    given = [str(photo) if word == "PHOTO" else word for word in arguments]
    if given[0] == "caption":
        given += ["--model", str(tiny_model)]
    assert main(given) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.startswith("captioner: ")
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("command", [["caption", "photo.jpg", "--model"], ["info"]])
def test_an_unknown_model_is_named(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "no-such-model"]) == 2
    assert "no-such-model" in capsys.readouterr().err


def test_info_says_what_the_model_is(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tiny_model)]) == 0
    text = capsys.readouterr().out
    assert "vgg11_bn" in text
    assert "14 words" in text
    assert "# A model of random weights" in text


def test_results_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    references = {
        "images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(3)],
        "annotations": [
            {"id": n, "image_id": n, "caption": f"the dog number {n} runs on grass"}
            for n in range(3)
        ],
    }
    (tmp_path / "references.json").write_text(json.dumps(references))
    results = [{"image_id": n, "caption": f"the dog number {n} runs on grass"} for n in range(2)]
    (tmp_path / "results.json").write_text(json.dumps(results))
    out = tmp_path / "scores.json"
    arguments = ["--results", str(tmp_path / "results.json")]
    arguments += ["--references", str(tmp_path / "references.json"), "--json", str(out)]
    assert main(["evaluate", *arguments]) == 0
    scores = json.loads(out.read_text())
    assert scores["BLEU-4"] == pytest.approx(1.0)
    assert scores["brevity_penalty"] == pytest.approx(1.0)
    assert scores["images"] == 2
    assert "BLEU-4" in capsys.readouterr().out


def test_a_model_is_evaluated_on_a_data_set(tiny_model: Path, tmp_path: Path) -> None:
    rows = ["image,caption"]
    for number in range(3):
        save_photo(tmp_path / f"{number}.png", number)
        rows += [f"{number}.png,a brown dog runs", f"{number}.png,two red dogs number {number}"]
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    out, kept = tmp_path / "scores.json", tmp_path / "kept.json"
    arguments = ["evaluate", "--model", str(tiny_model), "--format", "table", "--annotations"]
    arguments += [str(tmp_path / "captions.csv"), "--json", str(out), "--save-results", str(kept)]
    assert main(arguments) == 0
    assert json.loads(out.read_text())["images"] == 3
    assert [record["image_id"] for record in json.loads(kept.read_text())] == [
        "0.png",
        "1.png",
        "2.png",
    ]


def test_a_reader_that_leaves_early_is_no_error(tiny_model: Path, tmp_path: Path) -> None:
    paths = [str(save_photo(tmp_path / f"{number}.png", number)) for number in range(3)]
    command = [sys.executable, "-m", "captioner.cli.main", "caption", *paths]
    process = subprocess.Popen(
        [*command, "--model", str(tiny_model), "--batch-size", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    process.wait()
    assert "Traceback" not in errors
