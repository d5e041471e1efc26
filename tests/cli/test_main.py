"""The command line as a user meets it: exit codes, sentences, files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from samples import Output, Patch, Refused, save_photo

from captioner.cli.main import build_parser, main

COMMANDS = (
    *("caption", "translate", "serve", "train", "average", "evaluate", "score", "maps"),
    *("evaluate-translator", "score-translations", "document-frequency"),
    *("calibrate", "features", "info"),
)


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_teaches(arguments: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)
    assert "captioner caption --demo" in text


def wait_policy_with(program: str, **environment: str) -> str:
    """OMP_WAIT_POLICY when torch is imported, by a program in a fresh Python."""
    lines = "import os, sys, torch; print(os.environ.get('OMP_WAIT_POLICY'))"
    kept = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{lines}"],
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_command_line_has_threads_of_torch_wait_without_spinning() -> None:
    program = "import sys; from captioner.cli.main import main\n"
    program += "assert 'torch' not in sys.modules; main(['info', 'missing'])"
    assert wait_policy_with(program) == "PASSIVE"
    assert wait_policy_with(program, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"
    assert wait_policy_with("import captioner") == "None"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_on_a_screen(command: str, monkeypatch: Patch, capsys: Output) -> None:
    columns, rows = 100, 55 if command == "caption" else 45
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) <= rows
    assert max(map(len, lines)) <= columns
    assert "\noptions:" not in text  # Options are grouped by what they are for.


@pytest.mark.parametrize("command", ["evaluate", "maps", "evaluate-translator"])
def test_help_names_the_help_that_lists_the_search_options(command: str, capsys: Output) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    other = "translate" if command == "evaluate-translator" else "caption"
    assert f"see captioner {other} --help" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_the_help_are_valid(command: str) -> None:
    parser = build_parser()
    (commands,) = (each for each in parser._actions if isinstance(each.choices, dict))
    own = commands.choices[command]
    text = re.sub(r"\\\n *", "", own.description)
    examples = [
        line.split("|")[-1] for line in text.splitlines() if f"captioner {command} " in line
    ]
    assert examples
    for example in examples:
        line = example.strip().split("  ")[0]  # Behind it may be a comment.
        arguments = line.split("captioner ", 1)[1].partition(" >")[0].split()
        assert parser.parse_args(arguments).run is own.get_default("run")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such file names")
def test_a_file_name_stays_on_its_line(tiny_model: Path, tmp_path: Path, capsys: Output) -> None:
    photo = save_photo(tmp_path / "a\nb\x1b[2J\u202e.png")
    bad = tmp_path / "c\nd.png"
    bad.write_bytes(b"none")
    assert main(["caption", str(photo), str(bad), "--model", str(tiny_model)]) == 2
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert line.startswith(f"{tmp_path}/a\\nb\\x1b[2J\\u202e.png: ")
    assert printed.err.startswith(f"captioner: {tmp_path}/c\\nd.png is not an image")
    assert len(printed.err.splitlines()) == 2


def test_a_picture_that_cannot_be_written_does_not_end_the_batch(
    tiny_model: Path, tmp_path: Path, capsys: Output, monkeypatch: Patch
) -> None:
    paths = [str(save_photo(tmp_path / f"{number}.png", number)) for number in range(3)]
    maps, out = tmp_path / "maps", tmp_path / "out.json"
    (maps / "1.png").mkdir(parents=True)
    monkeypatch.setattr("captioner.cli.caption_outputs.Outputs._check_places", lambda outputs: ())
    arguments = ["--model", str(tiny_model), "--overlay", str(maps), "--json", str(out)]
    assert main(["caption", *paths, *arguments]) == 2
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert "1.png" in printed.err.splitlines()[0]
    assert "1 of the items named" in printed.err.splitlines()[1]
    assert (maps / "0.png").is_file()
    assert (maps / "2.png").is_file()
    records = json.loads(out.read_text())
    assert ["error" in record for record in records] == [False, True, False]
    assert [record.get("files") for record in records] == [
        {"overlay": str(maps / "0.png")},
        None,
        {"overlay": str(maps / "2.png")},
    ]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send SIGTERM to a handler")
def test_termination_keeps_what_is_captioned(tiny_model: Path, tmp_path: Path) -> None:
    photo = save_photo(tmp_path / "photo.png")
    paths = [str(tmp_path / f"{number}.png") for number in range(800)]
    for path in paths:
        os.link(photo, path)
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "captioner", "caption", *paths, "--batch-size", "1"]
    with subprocess.Popen(
        [*command, "--model", str(tiny_model), "--json", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 130
    progress, said = errors.decode().splitlines()
    assert re.fullmatch(r"captioning: \d+/800 photos, .* left", progress)
    assert said == "captioner: interrupted"
    assert 1 <= len(json.loads(out.read_text())) < 800


def test_n_best_shows_what_it_is_ranked_by(
    tiny_model: Path, tmp_path: Path, capsys: Output
) -> None:
    photo = save_photo(tmp_path / "photo.jpg")
    command = ["caption", str(photo), "--model", str(tiny_model), "--n-best", "4"]
    out = str(tmp_path / "out.json")
    assert main([*command, "--length-normalisation", "2", "--json", out]) == 0
    said = re.findall(r"\(score (\S+), log-probability (\S+)\)$", capsys.readouterr().out, re.M)
    scores = [float(score) for score, _ in said]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 4
    (record,) = json.loads((tmp_path / "out.json").read_text())
    found = [record, *record["alternatives"]]
    assert len({each["caption"] for each in found}) == 4
    assert [(f"{each['score']:.2f}", f"{each['log_probability']:.2f}") for each in found] == said
    for each in found:
        lengths = ((5 + len(each["words"]) + 1) / 6) ** 2
        assert each["score"] == pytest.approx(each["log_probability"] / lengths)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["caption"], "name a photo"),
        (["caption", "PHOTO", "--beam", "0"], "beam 0"),
        (["caption", "PHOTO", "--n-best", "5", "--beam", "2"], "n_best 5"),
        (["caption", "PHOTO", "--batch-size", "0"], "--batch-size 0"),
        (["caption", "PHOTO", "--device", "tpu7"], "tpu7"),
        (["caption", "PHOTO", "--strength", "3"], "strength 3"),
        (["train", "absent.yaml"], "absent.yaml"),
        (["features", "absent.yaml", "--out", "x"], "absent.yaml"),
        (["caption", "PHOTO", "--top-p", "0.9"], "--top-p has no meaning without --sample"),
        (["features", "configs/coco_soft.yaml", "--set", "features.folder=null"], "give --out"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    named: str,
    tiny_model: Path,
    tmp_path: Path,
    refused: Refused,
) -> None:
    photo = save_photo(tmp_path / "photo.jpg")
    places = {"PHOTO": str(photo), "M": str(tiny_model)}
    root = Path(__file__).resolve().parents[2]
    given = [places.get(word, word.replace("configs/", f"{root}/configs/")) for word in arguments]
    if given[0] == "caption":
        given += ["--model", str(tiny_model)]
    assert named in refused(given)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["captoin", "a.jpg"], "did you mean 'caption'?"),
        (["version"], "did you mean '--version'?"),
        (["README.md"], "did you mean 'captioner caption README.md'?"),
        (["--verison"], "unrecognized option --verison; did you mean '--version'?"),
    ],
)
def test_a_mistyped_command_is_suggested(
    arguments: list[str], said: str, capsys: Output, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", [["caption", "photo.jpg", "--model"], ["info"]])
def test_an_unknown_model_is_named(command: list[str], refused: Refused) -> None:
    assert "no-such-model" in refused([*command, "no-such-model"])
    assert "did you mean 'english_german'" in refused([*command, "english-german"])


@pytest.mark.parametrize("folder", ["stored", "2024"])
def test_features_go_where_the_config_or_the_option_says(
    folder: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "data: {format: shapes, shapes: {train: 3, validation: 2, pictures: {image_size: 64}}}\n"
        "preprocessing: {size: 64, resize: squash}\n"
        "encoder: {name: vgg11_bn, width: 0.05, weights: random}\n"
    )
    said = ["--out", folder] if folder == "2024" else ["--set", f"features.folder={folder}"]
    assert main(["features", "config.yaml", "--device", "cpu", *said]) == 0
    assert (tmp_path / folder / "train").is_dir()
    assert f"train: 3 images in {folder}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(tiny_model: Path, tmp_path: Path) -> None:
    paths = [str(save_photo(tmp_path / f"{number}.png", number)) for number in range(3)]
    command = [sys.executable, "-m", "captioner.cli.main", "caption", *paths]
    process = subprocess.Popen(
        [*command, "--model", str(tiny_model), "--batch-size", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.wait()
    assert "Traceback" not in errors
