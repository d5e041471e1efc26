"""Photos in tars and Parquet files: which there are, their bytes in any order, what is damaged."""

import gzip
import io
import os
import re
import tarfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow
import pyarrow.parquet
import pytest
from refusals import refuses
from samples import Patch, photo_bytes, write_parquet, write_tar

from captioner.vision import formats, parquet
from captioner.vision.finding import find_photos
from captioner.vision.images import load_image
from captioner.vision.shards import ShardMember, numbered, read_shards


def photos_of(pattern: Path) -> dict[str, Any]:
    """The photos that a pattern names, by name, of shards without a fault."""
    return {name: record["image"] for name, record in read_shards(pattern, pytest.fail)}


def names_and_reports(path: Path) -> tuple[list[str], list[str]]:
    """The names of the photos of a shard, and what is told about it."""
    reports: list[str] = []
    return [name for name, _ in read_shards(path, reports.append)], reports


def test_numbers_in_braces_name_shards(tmp_path: Path) -> None:
    assert numbered("s/{008..011}.tar") == ["s/008.tar", "s/009.tar", "s/010.tar", "s/011.tar"]
    assert numbered("{0..1}/{9..10}.tar") == ["0/9.tar", "0/10.tar", "1/9.tar", "1/10.tar"]
    assert numbered("s/{a}.tar") == ["s/{a}.tar"]
    path = str(write_tar(tmp_path / "{0..1}.tar", {}))
    assert numbered(path) == [path]


def test_photos_of_tars_are_read_in_any_order_with_their_texts(tmp_path: Path) -> None:
    members = {"1.txt": b"one", "a/1.jpg": b"a", "1.seg.png": b"s", "1.JPG": b"1", "1.cls": b"7"}
    write_tar(tmp_path / "s" / "0.tar", members)
    write_tar(tmp_path / "s" / "1.tar", {"1.jpg": b"2", "1.json": b"{}", "1.txt": b"two"})
    pattern = tmp_path / "s" / "{0..1}.tar"
    names = [f"{tmp_path}/s/{name}" for name in ("0.tar/a/1.jpg", "0.tar/1.seg.png")]
    names += [f"{tmp_path}/s/{name}" for name in ("0.tar/1.JPG", "1.tar/1.jpg")]
    photos = photos_of(pattern)
    assert list(photos) == names
    assert [photos[name].read() for name in reversed(names)] == [b"2", b"1", b"s", b"a"]
    assert photos[names[0]].image_id == "s/0.tar/a/1.jpg"
    (*_, (_, first), (_, last)) = read_shards(tmp_path / "s" / "*.tar", pytest.fail)
    assert {key: value.read() for key, value in first.items()} == {"image": b"1", ".txt": b"one"}
    assert [last[suffix].read() for suffix in (".txt", ".json")] == [b"two", b"{}"]


LINKS = {"early.jpg": "d/1.jpg", "d/1.jpg": b"one", "d/1.txt": "../1.txt", "1.txt": b"text"}
LINKS |= {"d/up.JPG": "../d/./1.jpg", "./same.jpg": "hard:d/1.jpg", "._left.jpg": "d/1.jpg"}
LINKS |= {"d/1.jpg ": b"no photo's suffix", "1.jpg": b"old", "old.jpg": "hard:1.jpg"}
LINKS |= {"new.jpg": "1.jpg", "alias": "d"}
LOST = {"circle.jpg": "circle.jpg", "chain.jpg": "early.jpg", "folder.jpg": "alias/1.jpg"}
LOST |= {"out.jpg": "../0.jpg", "/root.jpg": "/etc/passwd", "gone.jpg": "hard:none.jpg"}


def test_links_to_files_of_a_tar_are_followed_and_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(photo_bytes())  # Beside the tar.
    path = write_tar(tmp_path / "s/0.tar", LINKS | LOST)
    with tarfile.open(path, "a") as tar:  # The last of a name counts.
        info = tarfile.TarInfo("1.jpg")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"new"))
    reports: list[str] = []
    records = dict(read_shards(path, reports.append))
    photos = {name.removeprefix(f"{path}/"): record["image"] for name, record in records.items()}
    expected = {"early.jpg": b"one", "d/1.jpg": b"one", "d/up.JPG": b"one", "./same.jpg": b"one"}
    expected |= {"1.jpg": b"new", "old.jpg": b"old", "new.jpg": b"new"}
    assert {name: photo.read() for name, photo in photos.items()} == expected
    assert records[f"{path}/d/1.jpg"][".txt"].read() == b"text"
    fault = "is a sparse file, or a link to no file in the tar: not read"
    assert reports == [f"{path}/{name} {fault}" for name in LOST]


@pytest.mark.parametrize("form", [["bytes", "path"], ["path", "bytes"], []])
def test_photos_of_parquet_are_read_in_any_order(form: list[str], tmp_path: Path) -> None:
    contents = [os.urandom(20) for _ in range(300)]
    cells: list[Any] = [*contents]
    if form:
        columns = [{"bytes": content, "path": "x.jpg"} for content in contents]
        columns[7] = {"bytes": None, "path": "7.jpg"}
        (tmp_path / "7.jpg").write_bytes(contents[7])
        cells = [{name: cell[name] for name in form} for cell in columns]
    table = {"mask": [b"mask"] * 300, "image": cells}
    path = write_parquet(tmp_path / "p.parquet", table, rows_of_group=200)
    photos = list(photos_of(path).values())
    assert photos[17].name == f"{path}/17"
    for order in (range(300), range(299, -1, -1), [5, 250, 150, 60, 199, 200, 5, 5]):
        assert [photos[row].read() for row in order] == [contents[row] for row in order]


def test_photos_are_files_and_those_in_folders_and_shards_each_once(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "p.parquet", {"Filename": ["a.jpg", None], "n": [1, 2]})
    (tmp_path / "in").mkdir()
    (tmp_path / "in/c.jpg").touch()
    found, failed = find_photos([str(path), "-", "b.jpg", f"{tmp_path}/in", "-"])
    assert list(found) == [f"{tmp_path}/a.jpg", "-", "b.jpg", f"{tmp_path}/in/c.jpg"]
    assert list(found.values()) == list(found)
    assert [each.reason for each in failed] == [f"{path}/1 has no photo"]


NO_TAR = "it is damaged, cut off or compressed, or no tar"


def test_a_damaged_shard_loses_no_photo_before_the_fault(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "0.tar", {f"{n}.jpg": bytes(600) for n in range(3)})
    content = whole.read_bytes()
    second = content.index(b"1.jpg")
    end = content.rindex(b"2.jpg") + 512 + 1024  # of the members, without the mark of the end
    table = write_parquet(tmp_path / "p.parquet", {"n": [1]})
    for path, damaged, photos, reason in (
        (whole, content[: second + 700], 2, NO_TAR),
        (whole, content[:end], 3, NO_TAR),
        (whole, content[:second] + b"\xff" * 9 + content[second + 9 :], 1, NO_TAR),
        (whole, b"", 0, NO_TAR),
        (whole, gzip.compress(content), 0, NO_TAR),
        (table, table.read_bytes(), 0, r"it has no column of bytes, and none of paths \(image, "),
        (table, table.read_bytes()[:-9], 0, "Parquet magic bytes not found"),
    ):
        path.write_bytes(damaged)
        names, (problem,) = names_and_reports(path)
        assert len(names) == photos
        assert re.match(f"{path} cannot be read to its end: .*{reason}", problem)


def test_a_photo_that_cannot_be_read_is_named_and_the_next_one_is_read(tmp_path: Path) -> None:
    cells: list[Any] = [b"no photo", None, photo_bytes()]
    photos = list(photos_of(write_parquet(tmp_path / "p.parquet", {"jpg": cells})).values())
    paths = [os.devnull, "none.jpg"]  # A device may have no end.
    cells = [{"bytes": None, "path": path} for path in paths]
    lost = list(photos_of(write_parquet(tmp_path / "q.parquet", {"image": cells})).values())
    reasons = ["p.parquet/0 is not an image", "p.parquet/1 has no photo"]
    reasons += ["q.parquet/0 has no photo", "q.parquet/1 has no photo"]
    for member, reason in zip([*photos[:2], *lost], reasons, strict=True):
        refuses(rf"^{tmp_path}/{reason}", load_image, member)
    assert load_image(photos[2]).size == (120, 90)


ZEROS = bytes(2**27 + 1)
NULLS = [None] * (2**24 + 1)


@pytest.mark.parametrize(
    "columns",
    [
        {"im.age": [ZEROS]},
        {"image": [{"bytes": ZEROS, "path": ""}]},
        {"image": ["a.jpg"], "caption": [ZEROS.decode()]},
        {"image": [{"bytes": b"", "path": NULLS}]},
    ],
)
def test_a_packed_column_is_named_and_not_read(tmp_path: Path, columns: Any) -> None:
    path = write_parquet(tmp_path / "p.parquet", columns)
    names, (problem,) = names_and_reports(path)
    assert not names
    fault = r".*im.* in row group 0 has 134,\d{3},\d{3} bytes in \d"
    assert re.match(f"{path} cannot be read to its end: {fault}", problem)


def test_large_cells_are_decoded_one_by_one(tmp_path: Path, monkeypatch: Patch) -> None:
    """Dictionaries store repeated cells once: these 90 MB take 1 in the file."""
    monkeypatch.setattr(parquet, "_BYTES", 2**20)
    columns = {"image": [bytes(2**20)] * 90 + [b"1"]}
    path = write_parquet(tmp_path / "p.parquet", columns, rows_of_group=91)
    before = pyarrow.total_allocated_bytes()
    sizes = []
    for photo in photos_of(path).values():
        sizes.append(len(photo.read()))
        assert pyarrow.total_allocated_bytes() < before + 2**23
    assert sizes == [2**20] * 90 + [1]
    monkeypatch.setattr(formats, "LARGEST_FILE", 2**20 - 1)
    first, *_, last = photos_of(path).values()
    refuses(r"p.parquet/0 is too large: 1,048,\d* bytes, the limit", first.read)
    assert last.read() == b"1"


def test_a_large_row_group_is_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    """32 MB in one row group, of pages of 1,024 rows."""
    cells = [os.urandom(2048) for _ in range(16_384)]
    path = write_parquet(tmp_path / "p.parquet", {"image": cells}, rows_of_group=len(cells))
    before = pyarrow.total_allocated_bytes()
    for member, content in zip(photos_of(path).values(), cells, strict=True):
        assert member.read() == content
        assert pyarrow.total_allocated_bytes() - before < 8_000_000


def test_a_sparse_photo_is_named(tmp_path: Path) -> None:
    """Read as it lies in the tar, it would be another photo; other sparse files are no matter."""
    path, sparse = tmp_path / "0.tar", {"GNU.sparse.map": "0,3,6,3", "GNU.sparse.size": "9"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, headers in {"1.jpg": sparse, "disk.img": sparse, "2.jpg": {}}.items():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = 512, headers
            tar.addfile(info, io.BytesIO(bytes(512)))
    fault = f"{path}/1.jpg is a sparse file, or a link to no file in the tar: not read"
    assert names_and_reports(path) == ([f"{path}/2.jpg"], [fault])


def header_of(size: str, **fields: Any) -> bytes:
    """A header with a size as pax has it."""
    info = tarfile.TarInfo("1.jpg")
    info.pax_headers = {"size": size, **fields}
    return info.tobuf(tarfile.PAX_FORMAT)


LONG = tarfile.TarInfo("././@LongLink")
LONG.type, LONG.size = tarfile.GNUTYPE_LONGNAME, 512
SPARSE = header_of("3", **{"GNU.sparse.map": "0,x"})


@pytest.mark.parametrize(
    "content",
    [(LONG.tobuf() + bytes(512)) * 3_000, header_of("-512"), header_of(f"{10**30}"), SPARSE],
)
def test_hostile_headers_are_a_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    path.write_bytes(content + bytes(1024))
    assert names_and_reports(path)[1][0] == f"{path} cannot be read to its end: {NO_TAR}"


def test_a_parquet_of_the_same_name_and_time_is_another(tmp_path: Path, monkeypatch: Patch) -> None:
    for content in (b"a", b"b"):
        path = write_parquet(tmp_path / f"{content!r}/0.parquet", {"image": [content] * 2})
        os.utime(path, (0, 0))
        monkeypatch.chdir(path.parent)
        photos = photos_of(Path("0.parquet")).values()
        assert [each.read() for each in photos] == [content] * 2


def test_a_missing_unreadable_or_empty_shard_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.tar")
    (tmp_path / "a.tar").symlink_to("none")
    for name in ("0.tar", "b.parquet", "1.tar", "a.tar"):
        fault = f"{tmp_path / name} does not exist, or is no file"
        assert names_and_reports(tmp_path / name) == ([], [fault])
    path = write_tar(tmp_path / "c.tar", {"a/._1.jpg": b"1", "__MACOSX/1.jpg": b"1", "1.txt": b"1"})
    with mock.patch("tarfile.open", side_effect=PermissionError(13, "words of a system")):
        fault = f"{path} cannot be read to its end: words of a system"
        assert names_and_reports(path) == ([], [fault])
    empty = write_parquet(tmp_path / "e.parquet", {"image": pyarrow.array([], "binary")})
    for each in (path, empty):
        assert names_and_reports(each) == ([], [f"{each} holds no photos"])
    huge = ShardMember(f"{tmp_path}/c.tar", "1.jpg", (0, 2**30))
    refuses(r"c\.tar/1\.jpg is too large: 1,073,741,824 bytes", huge.read)
