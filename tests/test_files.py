"""Files are either the old one or the new one, whole; unreadable ones are named in a sentence."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_loss import Disk

from captioner.errors import UserError
from captioner.files import (
    atomic_folder,
    atomic_path,
    folder_lock,
    read_json,
    remove_temporaries,
    write_json,
    write_text,
)


def test_a_failing_block_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def write_half() -> None:
        with atomic_path(path) as temporary:
            assert temporary.parent == tmp_path
            assert temporary.suffix == ".txt"
            temporary.write_text("half of the n")
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    with atomic_folder(out) as temporary:
        (temporary / "file.txt").write_text("content")
        assert not out.exists()
    assert (out / "file.txt").read_text() == "content"
    assert list(out.parent.iterdir()) == [out]
    assert out.stat().st_mode == out.parent.stat().st_mode

    def fill_half() -> None:
        with atomic_folder(tmp_path / "other") as temporary:
            (temporary / "file.txt").write_text("half")
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        fill_half()
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]


def test_a_folder_takes_the_place_of_an_empty_one_only(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with atomic_folder(tmp_path / "empty") as temporary:
        (temporary / "file.txt").touch()
    for place, message in (
        (tmp_path / "empty", "is there already, and not empty"),
        (tmp_path / "empty" / "file.txt", "is a file, not a folder"),
        (tmp_path / "empty" / "file.txt" / "below", "cannot make folder"),
    ):
        with pytest.raises(UserError, match=message), atomic_folder(place):
            pass
    assert [path.name for path in tmp_path.rglob("*")] == ["empty", "file.txt"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_permissions_are_those_of_any_other_file_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "shared.xmp"
    write_text(path, "old")
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    for mode in (0o600, 0o664, 0o444):
        path.chmod(mode)
        write_text(path, "new")
        assert path.stat().st_mode & 0o777 == mode


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file.txt"
    write_text(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*file\.txt: No space left on device"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*inner"):
        write_text(tmp_path / "file" / "inner", "x")
    with pytest.raises(UserError, match=r"cannot write .*folder"):
        write_text(tmp_path / "folder", "x")
    with pytest.raises(UserError, match="cannot write"):
        write_text(tmp_path / "null\0byte", "x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "model config .* does not exist"),
        (b"\xff\xfe", r"model config .* is not UTF-8 text \(byte 0\): save it as"),
        (b"", r"model config .* is not valid JSON \(.*: line 1 "),
        (b'{"a": 1,\n"b" 2}', r"model config .* is not valid JSON \(.*: line 2 "),
        (b"[" * 100_000, "model config .* is not"),
        (b"1" * 5000, "model config .* is not valid JSON"),
    ],
)
def test_unreadable_json_is_named(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=sentence) as error:
        read_json(path, "model config")
    assert str(path) in str(error.value)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    # Surrogates stand for the bytes of file names that are not UTF-8.
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=PLAIN)
def test_json_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value)
    # A pair of halves is one character to JSON, written in either way.
    assert read_json(path) == json.loads(json.dumps(value))


def test_a_locked_folder_is_refused_until_it_is_let_go(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"

    def lock_twice() -> None:
        with folder_lock(folder, "run"), folder_lock(folder, "run"):
            raise AssertionError("it was locked twice")

    with pytest.raises(UserError, match=f"^run {folder} is in use by another process$"):
        lock_twice()
    with folder_lock(folder, "run"), folder_lock(tmp_path, "run"):
        pass


def test_a_locked_folder_can_be_waited_for(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with folder_lock(tmp_path, "run", wait=True):
            order.append("second")

    waiting = threading.Thread(target=second)
    with folder_lock(tmp_path, "run"):
        waiting.start()
        waiting.join(0.1)
        order.append("first")
    waiting.join(60)
    assert order == ["first", "second"]


def test_what_a_link_names_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "there" / "real.json", tmp_path / "link.json"
    real.parent.mkdir()
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert [file.name for file in real.parent.iterdir()] == ["real.json"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_text)
        write_text(pipe, "through")
        assert reading.result(timeout=20) == "through"
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot flush folders")
def test_a_power_loss_at_any_moment_leaves_files_and_folders_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "outputs"
    write_json(folder / "file.json", "old")

    def write() -> None:
        write_json(folder / "file.json", "new")
        with atomic_folder(folder / "model") as temporary:
            write_text(temporary / "one", "1")
            write_text(temporary / "two", "2")

    disk = Disk(folder)
    disk.record(monkeypatch, write)
    found = [
        (
            json.loads((state / "file.json").read_text()),
            "".join(sorted(file.read_text() for file in (state / "model").glob("*"))),
        )
        for state in disk.states(tmp_path / "states")
    ]
    assert list(dict.fromkeys(found)) == [("old", ""), ("new", ""), ("new", "12")]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a.json") as temporary:
        left = temporary.with_name(f"{temporary.name}x")
    left.touch()  # As if the process had been killed in the block.
    (tmp_path / ".captioner-folder-1" / "inner").mkdir(parents=True)
    (tmp_path / "kept.json").touch()
    remove_temporaries(tmp_path)  # Another process may be writing them.
    assert len(list(tmp_path.iterdir())) == 4
    os.utime(left, (1, 1))
    remove_temporaries(tmp_path)
    assert not left.exists()
    remove_temporaries(tmp_path, age=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "kept.json"]
