"""What `captioner caption` reads: photos and names on standard input, options between photos."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import Output, Patch, Refused, save_photo

from captioner.cli.main import main


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working folder with a model and two photos."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a.png", "b.png")):
        save_photo(tmp_path / name, number)
    return tmp_path


def give(content: bytes, monkeypatch: Patch) -> None:
    """Put bytes on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp", "tif", "jp2", "ppm"])
def test_a_photo_on_standard_input_is_captioned(
    suffix: str, folder: Path, monkeypatch: Patch, capsys: Output
) -> None:
    path = Path(f"photo.{suffix}")
    save_photo(path)
    assert main(["caption", str(path), "--model", "tiny-model"]) == 0
    give(path.read_bytes(), monkeypatch)
    command = ["caption", "-", "--model", "tiny-model", "--words", "maps"]
    assert main([*command, "--html", "page.html"]) == 0
    assert "<figcaption></figcaption>" in Path("page.html").read_text(encoding="utf-8")
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert list(Path("maps").iterdir())


def test_a_photo_on_standard_input_stands_among_others(
    folder: Path, monkeypatch: Patch, capsys: Output
) -> None:
    command = ["caption", "b.png", "-", "--model", "tiny-model", "--json", "o.json"]
    give(Path("a.png").read_bytes(), monkeypatch)
    assert main([*command, "--overlay", "maps/"]) == 0
    assert [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()] == ["b.png", "-"]
    assert [record["image"] for record in json.loads(Path("o.json").read_text())] == ["b.png", "-"]
    assert {path.name for path in Path("maps").iterdir()} == {"b.png", "standard_input.png"}
    give(Path("a.png").read_bytes()[:60], monkeypatch)
    assert main([*command, "--overwrite"]) == 2
    assert capsys.readouterr().err.startswith("captioner: standard input is ")


def test_a_list_of_names_stays_a_list(folder: Path, monkeypatch: Patch, capsys: Output) -> None:
    give(b"a.png\r\n\nb.png\n", monkeypatch)
    command = ["caption", "-", "--model", "tiny-model", "--format", "{path}"]
    assert main(command) == 0
    assert capsys.readouterr().out == "a.png\nb.png\n"


def test_closed_standard_input_is_a_sentence(
    folder: Path, monkeypatch: Patch, refused: Refused
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refused(["caption", "-", "--model", "tiny-model"])


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_names_and_lines_end_in_nul(folder: Path) -> None:
    names = [b"new\nline.png", b"caf\xe9.png"]
    for name in names:
        Path(os.fsdecode(name)).symlink_to("a.png")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "captioner", "caption", "-0", "-"),
            *("--model", "tiny-model", "--json", "o.json"),
        ],
        input=b"".join(name + b"\0" for name in names),
        capture_output=True,
    )
    assert (run.returncode, run.stderr) == (0, b"")
    *lines, end = run.stdout.split(b"\0")
    assert end == b""
    records = json.loads(Path("o.json").read_text())
    assert [record["image"] for record in records] == [os.fsdecode(name) for name in names]
    captions = [record["caption"].encode() for record in records]
    assert lines == [b"%s: %s" % pair for pair in zip(names, captions, strict=True)]


@pytest.mark.parametrize("content", [b"", b"\n \r\n"])
def test_empty_standard_input_is_named(content: bytes, monkeypatch: Patch, capsys: Output) -> None:
    give(content, monkeypatch)
    assert main(["caption", "-"]) == 2
    said = "standard input is empty: it should be a photo or a list of names"
    assert capsys.readouterr().err == f"captioner: {said}\n"


def test_options_may_stand_between_photos(folder: Path, capsys: Output) -> None:
    command = ["caption", "a.png", "--model", "tiny-model", "b.png", "--beam", "2"]
    save_photo(folder / "c.png")
    save_photo(folder / "-d.png")
    with pytest.raises(SystemExit):
        main(["caption", "-d.png"])
    assert "-d.png is no option; the file of that name is ./-d.png" in capsys.readouterr().err
    assert main([*command, "--format", "{path}", "c.png", "--", "--b.png"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "a.png\nb.png\nc.png\n"
    assert "--b.png does not exist" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["caption", "a.jpg", "--bean", "3"], "unrecognized option --bean; did you mean '--beam'?"),
        (["average", "a", "--otu", "b"], "unrecognized option --otu; did you mean '--out'?"),
        (["caption", "--xmp-for", "digicam"], "did you mean 'digikam'?"),
        (["caption", "a.jpg", "-q"], "unrecognized arguments: -q"),
        (["caption", "-demo"], "unrecognized arguments: -demo; did you mean '--demo'?"),
        (["caption", "a.jpg", "--beam"], "argument --beam: expected one argument"),
        (["translate", "a.txt", "b.txt"], "unrecognized arguments: b.txt"),
    ],
)
def test_an_unknown_option_shows_the_usage_of_its_command(
    arguments: list[str], said: str, capsys: Output
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"usage: captioner {arguments[0]} ")
    assert said in error
