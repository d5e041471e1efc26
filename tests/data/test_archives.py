from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.data.archives import unpack_missing
from captioner.errors import UserError


def make_archive(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_archives_as_flickr8k_has_them(tmp_path: Path) -> None:
    """One holds a folder and what macOS adds, the other files side by side."""
    photos = make_archive(
        tmp_path / "photos.zip",
        {"Flicker8k_Dataset/1.jpg": b"one", "__MACOSX/Flicker8k_Dataset/._1.jpg": b"x"},
    )
    text = make_archive(tmp_path / "text.zip", {"tokens.txt": b"a", "sub/list.txt": b"b"})
    data = tmp_path / "data"
    unpack_missing({str(data / "photos"): photos, str(data / "text"): text})
    assert files_of(data / "photos") == {"1.jpg": b"one"}
    assert files_of(data / "text") == {"tokens.txt": b"a", "sub/list.txt": b"b"}
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == ["photos", "text"]


def test_a_folder_that_is_there_stays_and_a_missing_archive_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    archive = make_archive(tmp_path / "photos.zip", {"1.jpg": b"one"})
    unpack_missing({str(tmp_path / "photos"): archive, str(tmp_path / "text"): "gone.zip"})
    assert files_of(tmp_path / "photos") == {}
    assert not (tmp_path / "text").exists()


@pytest.mark.parametrize("name", ["../out.jpg", "/out.jpg", "folder/../../out.jpg", "C:/out.jpg"])
def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, name: str) -> None:
    archive = make_archive(tmp_path / "data/photos.zip", {"1.jpg": b"one", name: b"two"})
    unpack_missing({str(tmp_path / "data/photos"): archive})
    assert sorted(files_of(tmp_path / "data/photos").values()) == [b"one", b"two"]
    unpacked = [path for path in files_of(tmp_path) if path.endswith(".jpg")]
    assert all(path.startswith("data/photos/") for path in unpacked)


@given(st.data())
def test_a_damaged_archive_leaves_nothing_behind(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    archive = make_archive(folder / "photos.zip", {"a/1.jpg": b"one" * 30, "a/2.jpg": b"two" * 30})
    content = bytearray(archive.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    archive.write_bytes(content)
    refused = ""
    try:
        unpack_missing({str(folder / "photos"): archive})
    except UserError as error:
        refused = str(error)
    assert ("photos.zip" in refused) == (not (folder / "photos").exists())
    assert {path.name for path in folder.iterdir() if path.is_dir()} <= {"photos"}


def test_an_archive_of_nothing_makes_no_folder(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "photos.zip", {"__MACOSX/._1.jpg": b"x"})
    with pytest.raises(UserError, match="holds no files"):
        unpack_missing({str(tmp_path / "photos"): archive})
    assert not (tmp_path / "photos").exists()


def test_what_is_larger_than_the_disk_is_refused(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "bomb.zip", {"1.jpg": b"one"})
    content = bytearray(archive.read_bytes())
    directory = content.rindex(b"PK\1\2")
    content[directory + 24 : directory + 28] = (2**32 - 2).to_bytes(4, "little")  # its size
    archive.write_bytes(content)
    usage = shutil.disk_usage(tmp_path)._replace(free=10**9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(UserError, match=r"bomb\.zip unpacks to 4\.3 GB; .* has 1\.0 GB left"):
            unpack_missing({str(tmp_path / "photos"): archive})
    assert not (tmp_path / "photos").exists()
