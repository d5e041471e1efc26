"""What `captioner caption` reads: photos and names on standard input, options between photos."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import Output, Patch, Refused, save_photo

from captioner.cli.main import main

Give = Callable[[bytes], None]
CAPTION = ["caption", "--model", "tiny-model"]


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp", "tif", "jp2", "ppm"])
def test_a_photo_on_standard_input_is_captioned(
    suffix: str, folder: Path, give: Give, capsys: Output
) -> None:
    path = save_photo(Path(f"photo.{suffix}"))
    assert main([*CAPTION, str(path)]) == 0
    give(path.read_bytes())
    assert main([*CAPTION, "-", "--words", "maps", "--html", "page.html"]) == 0
    assert "<figcaption></figcaption>" in Path("page.html").read_text(encoding="utf-8")
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert list(Path("maps").iterdir())


def test_a_photo_on_standard_input_stands_among_others(
    folder: Path, give: Give, capsys: Output
) -> None:
    command = [*CAPTION, "b.png", "-", "--json", "o.json", "--overlay", "maps/"]
    give(Path("a.png").read_bytes())
    assert main(command) == 0
    assert [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()] == ["b.png", "-"]
    assert [record["image"] for record in json.loads(Path("o.json").read_text())] == ["b.png", "-"]
    assert {path.name for path in Path("maps").iterdir()} == {"b.png", "standard_input.png"}
    give(Path("a.png").read_bytes()[:60])
    assert main([*command, "--overwrite"]) == 2
    assert capsys.readouterr().err.startswith("captioner: cannot read standard input: ")


def test_a_list_of_names_stays_a_list(folder: Path, give: Give, capsys: Output) -> None:
    give(b"a.png\r\n\nb.png\n")
    assert main([*CAPTION, "-", "--format", "{path}"]) == 0
    assert capsys.readouterr().out == "a.png\nb.png\n"


@pytest.mark.parametrize("command", [["caption", "-"], ["translate"]])
def test_closed_standard_input_is_a_sentence(
    command: list[str], monkeypatch: Patch, refused: Refused
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refused(command)


@pytest.mark.parametrize("content", [b"", b"\n \r\n"])
def test_empty_standard_input_is_named(content: bytes, give: Give, refused: Refused) -> None:
    give(content)
    said = "standard input is empty: it should be a photo or a list of names"
    assert said in refused(["caption", "-"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_names_and_lines_end_in_nul(folder: Path) -> None:
    names = [b"new\nline.png", b"caf\xe9.png"]
    for name in names:
        Path(os.fsdecode(name)).symlink_to("a.png")
    command = [sys.executable, "-m", "captioner", *CAPTION, "-0", "-", "--json", "o.json"]
    run = subprocess.run(command, input=b"".join(b"%s\0" % n for n in names), capture_output=True)
    assert (run.returncode, run.stderr) == (0, b"")
    records = json.loads(Path("o.json").read_text())
    assert [record["image"] for record in records] == [os.fsdecode(name) for name in names]
    captions = [record["caption"].encode() for record in records]
    assert run.stdout == b"".join(b"%s: %s\0" % pair for pair in zip(names, captions, strict=True))


def test_options_may_stand_between_photos(folder: Path, capsys: Output) -> None:
    save_photo(folder / "c.png")
    command = [*CAPTION, "a.png", "--device", "cpu", "b.png", "--beam", "2"]
    assert main([*command, "--format", "{path}", "c.png", "--", "--b.png"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "a.png\nb.png\nc.png\n"
    assert "--b.png does not exist" in printed.err
