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

from captioner.cli.main import REMOVED, build_parser, main

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = (
    *("caption", "translate", "serve", "train", "evaluate", "score", "maps"),
    *("evaluate-translator", "score-translations"),
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "expected"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")]
)
def test_the_command_line_has_threads_of_torch_wait_without_spinning(
    given: dict[str, str], expected: str
) -> None:
    program = "import os, sys; from captioner.cli.main import main\n"
    program += "assert 'torch' not in sys.modules; main(['info', 'missing'])\n"
    program += "import torch; print(os.environ['OMP_WAIT_POLICY'])"
    kept = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**kept, **given}, capture_output=True, text=True)
    assert done.stdout.strip() == expected


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


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
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
    folder: Path, capsys: Output, monkeypatch: Patch
) -> None:
    Path("maps/a.png").mkdir(parents=True)
    monkeypatch.setattr("captioner.cli.outputs.check_files", lambda *_, **__: None)
    command = ["caption", "a.png", "b.png", "--model", "tiny-model", "--json", "out.json"]
    assert main([*command, "--overlay", "maps/"]) == 2
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    first, last = printed.err.splitlines()
    assert "a.png" in first
    assert "1 of the items named" in last
    failed, written = json.loads(Path("out.json").read_text())
    assert "error" in failed
    assert "files" not in failed
    assert written["files"] == {"overlay": "maps/b.png"}
    assert Path("maps/b.png").is_file()


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


def test_n_best_shows_what_it_is_ranked_by(folder: Path, capsys: Output) -> None:
    command = ["caption", "a.png", "--model", "tiny-model", "--n-best", "4"]
    assert main([*command, "--length-normalisation", "2", "--json", "out.json"]) == 0
    said = re.findall(r"\(score (\S+), log-probability (\S+)\)$", capsys.readouterr().out, re.M)
    (record,) = json.loads(Path("out.json").read_text())
    found = [record, *record["alternatives"]]
    assert len({each["caption"] for each in found}) == 4
    assert [(f"{each['score']:.2f}", f"{each['log_probability']:.2f}") for each in found] == said
    scores = [each["score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    for each in found:
        lengths = ((5 + len(each["words"]) + 1) / 6) ** 2
        assert each["score"] == pytest.approx(each["log_probability"] / lengths)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("caption", "name a photo"),
        ("caption a.png --n-best 5 --beam 2", "n_best 5"),
        ("caption a.png --batch-size 0", "--batch-size 0"),
        ("caption a.png --device tpu7", "tpu7"),
        ("caption a.png --top-p 0.9", "--top-p has no meaning without --sample"),
        ("train absent.yaml", "absent.yaml"),
        ("features absent.yaml --out x", "absent.yaml"),
        (f"features {ROOT}/configs/coco_soft.yaml --set features.folder=null", "give --out"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: str, named: str, refused: Refused
) -> None:
    assert named in refused(arguments.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("captoin a.jpg", "did you mean 'caption'?"),
        ("version", "did you mean '--version'?"),
        ("README.md", "did you mean 'captioner caption README.md'?"),
        ("--verison", "unrecognized option --verison; did you mean '--version'?"),
        ("caption a.jpg --bean 3", "unrecognized option --bean; did you mean '--beam'?"),
        ("calibrate a --josn b", "unrecognized option --josn; did you mean '--json'?"),
        ("caption --xmp-for digicam", "did you mean 'digikam'?"),
        ("caption a.jpg -q", "unrecognized arguments: -q"),
        ("caption -demo", "unrecognized arguments: -demo; did you mean '--demo'?"),
        ("caption -LICENSE", "-LICENSE is no option; the file of that name is ./-LICENSE"),
        ("caption a.jpg --beam", "argument --beam: expected one argument"),
        ("translate a.txt b.txt", "unrecognized arguments: b.txt"),
        ("evaluate M --format csv", "'csv' is not one of coco"),
    ],
)
def test_a_mistyped_command_or_option_is_suggested_after_the_usage(
    arguments: str, said: str, capsys: Output, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("README.md", "-LICENSE"):
        Path(name).touch()
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    command = arguments.split()[0]
    shown = command if command in COMMANDS else "COMMAND"
    assert usage.startswith(f"usage: captioner {shown} ")
    assert said in error


@pytest.mark.parametrize("command", [["caption", "photo.jpg", "--model"], ["info"]])
def test_an_unknown_model_is_named(command: list[str], refused: Refused) -> None:
    assert "no-such-model" in refused([*command, "no-such-model"])
    assert "did you mean 'english_german'" in refused([*command, "english-german"])


@pytest.mark.parametrize("name", REMOVED)
def test_what_went_is_refused_by_name_with_what_to_use_instead(name: str, refused: Refused) -> None:
    command, *option = name.split()
    given = [f"{option[0]}=x"] if option else ["x"]
    for arguments in ([command, *given], [command, "a", *option]):
        assert refused(arguments) == f"captioner: captioner {name} was removed: {REMOVED[name]}"
    assert command not in build_parser().format_help() or option


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
    command = [sys.executable, "-m", "captioner", "caption", *paths]
    process = subprocess.Popen(
        [*command, "--model", str(tiny_model), "--batch-size", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.wait()
    assert "Traceback" not in errors
