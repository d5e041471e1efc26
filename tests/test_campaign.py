"""Hostile names and sizes of photos, and kills: a sentence, in time, and nothing left."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_commands import Commands, Ended, forked_commands
from PIL import Image
from samples import make_captioner, save_photo

from captioner.caption.folder import save_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="for Linux"),
]

MODEL = ["--model", "captioner", "--device", "cpu"]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    folder = tmp_path_factory.mktemp("campaign")
    save_model(make_captioner(), folder / "captioner")
    with forked_commands(folder) as commands:
        yield commands


def held(commands: Commands, arguments: list[str]) -> Ended:
    """Run a command, which must end by itself and leave no temporary file."""
    ended = commands.run(arguments)
    assert ended.code in (0, 2), (arguments, ended)
    assert "Traceback" not in ended.errors
    assert ended.code == 0 or ended.errors
    assert not [path for path in commands.folder.rglob(".captioner-*") if path.exists()]
    return ended


NAMES = [
    b"line\nbreak.png",
    b"bell\a\x1b[2J.png",
    b"-dash.png",
    b"a b'\"$(x).png",
    b"latin\xe9.png",
    "ma\u0308nnchen \U0001f600.png".encode(),
    "right\u202egnp.png".encode(),
    b"n" * 251 + b".png",
    b"{caption}.png",
    b".png",
    b"no suffix",
]


def test_photos_of_hostile_names_and_sizes(commands: Commands) -> None:
    folder = commands.folder / "many"
    folder.mkdir()
    photo = save_photo(folder / "whole.png").read_bytes()
    (folder / "cut.png").write_bytes(photo[:-100])
    for raw in NAMES:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + raw)).write_bytes(photo)
    for mode, width, height in (("L", 200_000, 1), ("1", 1, 200_000), ("I;16", 7_000, 7_000)):
        Image.new(mode, (width, height)).save(folder / f"bomb{height}.png")
    os.mkfifo(folder / "fifo.png")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "zero.png").symlink_to("/dev/zero")
    (folder / "folder.png").mkdir()
    more = ["--xmp", "--text", "--csv", "o.csv", "--json", "o.json", "--html", "o.html"]
    ended = held(commands, ["caption", "many", *MODEL, *more])
    assert ended.code == 2
    assert "\x1b" not in ended.output + ended.errors
    records = json.loads((commands.folder / "o.json").read_text())
    errors = {Path(each["image"]).name: each.get("error") for each in records}
    names = [name.decode(errors="surrogateescape") for name in NAMES[:-2]]
    assert {name: errors[name] for name in names if errors[name]} == {}
    assert len(errors) >= 7 + len(NAMES)


def test_ten_kills_of_captioning_change_no_byte(commands: Commands) -> None:
    folder = commands.folder / "killed"
    for number in range(24):
        save_photo(folder / "photos" / f"{number}.png", number)
    lines, first = commands.folder / "killed.jsonl", commands.folder / "first.jsonl"

    def check() -> None:
        if first.exists():
            assert lines.read_bytes() == first.read_bytes()
        lines.rename(first)

    command = ["caption", "killed/photos", *MODEL, "--jsonl", "killed.jsonl", "--resume"]
    commands.kill(10, [*command, "--batch-size", "1"], check)
