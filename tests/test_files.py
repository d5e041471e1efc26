"""Files are either the old one or the new one, whole; unreadable ones are named in a sentence."""

import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from refusals import refuses
from samples import Patch

from captioner.errors import UserError
from captioner.files import (
    as_utf8,
    atomic_path,
    existing_path,
    lock,
    read_json,
    read_text,
    remove_temporaries,
    write_json,
    write_text,
)
from captioner.model_folders import complete_folder
from captioner.model_saving import saving


def test_a_failing_block_leaves_the_old_file_or_model_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model" / "file.txt"
    write_text(path, "old")
    with suppress(RuntimeError), atomic_path(path) as temporary:
        assert (temporary.parent, temporary.suffix) == (path.parent, ".txt")
        temporary.write_text("half of the n")
        raise RuntimeError
    with suppress(RuntimeError), saving(path.parent) as files:
        write_text(files / path.name, "new")
        raise RuntimeError
    assert [found.name for found in tmp_path.rglob("*")] == ["model", "file.txt"]
    assert path.read_text() == "old"


def test_places_that_cannot_be_written_are_named(tmp_path: Path, monkeypatch: Patch) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("old")
    folder.mkdir()
    for path in (file / "inner", folder):
        refuses(f"cannot write {path}: ", write_text, path, "new")
    refusal = pytest.raises(UserError, match=f"cannot write model folder {file}: ")
    with refusal, saving(file):
        pass
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=full))
    refuses(f"cannot write {file}: No space left on device", write_text, file, "new")
    assert sorted(tmp_path.iterdir()) == [file, folder]
    assert file.read_text() == "old"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "model config .* does not exist"),
        (b"\xfe", r"model config .* is not UTF-8 text \(line 1, byte 0\): save it as"),
        (b"", r"model config .* is not valid JSON \(.*: line 1 "),
        (b'{"a": 1,\n"b" 2}', r"model config .* is not valid JSON \(.*: line 2 "),
        (b"[" * 100_000, "model config .* is not"),
        (b'[{"a.jpg": "One", "b": 2, "a.jpg": "Two"}]', r"not valid JSON \('a.jpg' is given twice"),
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


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "new" / ".lock"
    order: list[str] = []

    def wait() -> None:
        with lock(path, "store", wait=True):
            order.append("second")

    waiting = threading.Thread(target=wait)
    with lock(path, "store"):
        waiting.start()
        waiting.join(0.1)
        order.append("first")
    waiting.join(60)
    assert order == ["first", "second"]


LOCK = """
import errno, fcntl, sys
from pathlib import Path
from captioner.files import lock
def flock(*_):
    raise OSError(getattr(errno, sys.argv[1]), "no such locks")
fcntl.flock = flock
with lock(Path("new/.lock"), "the run"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
@pytest.mark.parametrize("error", ["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def test_a_file_is_the_lock_where_the_file_system_has_none(error: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCK, error]
    options: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True}
    options |= {"env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **options, **pipes) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        second = subprocess.run(command, **options, stdin=subprocess.DEVNULL)
        first.kill()  # What it leaves is no lock any more.
    marker = f"new{os.sep}.lock.held"
    line = f"captioner: the run is locked by the file {marker}: its file system has no locks\n"
    assert second.stderr.startswith(line)
    in_use = f"the run is in use by another process; if not, remove {marker}\n"
    assert second.stderr.endswith(in_use)
    assert (tmp_path / marker).exists()
    subprocess.run(command, **options, stdin=subprocess.DEVNULL, check=True)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".lock"]


def test_a_folder_is_listed_once_until_it_changes(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "A.JPG").touch()
    os.utime(tmp_path, (1, 1))
    listed = mock.Mock(side_effect=os.listdir)
    monkeypatch.setattr(os, "listdir", listed)
    found = [existing_path(tmp_path / name).name for name in ("a.jpg", "b.jpg", "a.JPG")]
    assert (found, listed.call_count) == (["A.JPG", "b.jpg", "A.JPG"], 1)
    (tmp_path / "B.JPG").touch()
    assert existing_path(tmp_path / "b.jpg").name == "B.JPG"


def test_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
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


def test_a_stop_at_any_moment_leaves_the_old_model_or_the_new(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Replays a saving: a copy of the folder after each change of names that it makes."""
    folder, copies = tmp_path / "model", tmp_path / "copies"

    def save(version: str) -> None:
        with saving(folder) as files:
            for name in ("config.json", "vocabulary.json"):
                write_json(files / name, {"version": version})

    def recorded(change: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> None:
            change(*arguments, **options)
            with monkeypatch.context() as patch:
                patch.setattr(os, "mkdir", make_folder)
                shutil.copytree(folder, copies / f"{len(list(copies.iterdir())):03}")

        return call

    save("old")
    copies.mkdir()
    make_folder = os.mkdir
    with monkeypatch.context() as patch:
        for name in ("replace", "rename", "unlink", "rmdir", "mkdir"):
            patch.setattr(os, name, recorded(getattr(os, name)))
        save("new")
    folders = [complete_folder(copy) for copy in sorted(copies.iterdir())]
    found = [tuple(read_json(path)["version"] for path in each.glob("*.json")) for each in folders]
    assert len(found) > 5
    assert list(dict.fromkeys(found)) == [("old", "old"), ("new", "new")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_texts_are_decoded_by_their_mark_or_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes("é.jpg\r\nb.jpg\n".encode(encoding))
    if encoding.endswith("e"):  # Without a mark.
        refuses(r"list .*list\.txt is not UTF-8 text .*: save it as", read_text, path, "list")
    else:
        assert read_text(path, "list") == "é.jpg\nb.jpg\n"
        assert as_utf8(path.read_bytes(), "list") == "é.jpg\r\nb.jpg\n".encode()


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "file/a", ".", "pipe", "/dev/zero", "large"])
def test_only_files_of_a_size_and_open_pipes_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)
    fault = {"large": "is too large", "a\0b": "does not exist"}.get(name, "cannot read")
    refuses(fault, read_text, tmp_path / name)
    reader, writer = os.pipe()
    os.write(writer, b"a\n")
    os.close(writer)
    assert read_text(f"/dev/fd/{reader}") == "a\n"
    os.close(reader)
