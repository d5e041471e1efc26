"""From paths, folders and patterns to image files. No file here needs to be a real image."""

import os
from collections import Counter
from pathlib import Path

import pytest
from photo_samples import encoded, smooth_photo

from captioner.errors import UserError
from captioner.vision.images import find_images

ALL = ["photos/a.PNG", "photos/b.jpg", "photos/trip/day 2/c.webp"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with photos at several depths and things that are not photos."""
    monkeypatch.chdir(tmp_path)
    others = ["photos/notes.txt", "photos/.hidden.jpg", "photos/.thumbnails/small.jpg"]
    for name in [*ALL, *others, "photos/trip/no_suffix", "documents/[b].jpg"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    return tmp_path


def names(*paths: str | Path) -> list[str]:
    return [path.as_posix() for path in find_images(paths)]


def test_a_folder_is_gone_through_to_the_bottom_and_sorted(here: Path) -> None:
    assert names("photos") == names(Path("photos")) == ALL
    (here / "photos" / "trip" / "no_suffix").write_bytes(encoded(smooth_photo(), "JPEG"))
    found = sorted([*ALL, "photos/trip/no_suffix"])
    assert names(here / "photos") == [(here / name).as_posix() for name in found]


def test_what_is_named_outright_is_taken_in_its_order_whatever_it_is(here: Path) -> None:
    files = ["photos/notes.txt", "photos/b.jpg", "photos/.hidden.jpg", "photos/trip/no_suffix"]
    nothing = ["missing.jpg", "a\0/*.jpg"]
    assert names(*files, *nothing, "photos/b.jpg") == [*files, *nothing, "photos/b.jpg"]
    assert names("photos/.thumbnails") == ["photos/.thumbnails/small.jpg"]
    os.symlink("nowhere", "photos/link.jpg")
    assert names("photos/link.jpg") == ["photos/link.jpg"]
    assert "photos/link.jpg" in names("photos")


def test_patterns(here: Path) -> None:
    assert names("photos/[b-c].jpg") == ["photos/b.jpg"]
    assert names("photos/**/*.webp") == ["photos/trip/day 2/c.webp"]
    # As if the shell had put the matches there: a file is a file, a folder is gone through.
    assert names("photos/*") == sorted([*ALL, "photos/notes.txt"])
    assert names("documents/[b].jpg") == ["documents/[b].jpg"]  # A file of that name exists.


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("missing/*.jpg", "missing/*.jpg matches no file"),
        ("empty", "folder empty holds no images"),
        ("linked", "folder linked/up is a symbolic link and was not entered"),
    ],
)
def test_problems_are_reported_and_the_rest_is_found(here: Path, path: str, problem: str) -> None:
    Path("linked").mkdir()
    os.symlink("..", "linked/up")
    Path("linked/a.jpg").write_bytes(b"x")
    reports: list[str] = []
    found = find_images(["photos/b.jpg", path], reports.append)
    assert found == [Path("photos/b.jpg"), *Path("linked").glob("a.jpg")][: 1 + (path == "linked")]
    assert len(reports) == 1
    assert reports[0].startswith(problem)
    with pytest.raises(UserError, match=r"^(folder |cannot |missing|photos)"):
        find_images([path])


def test_files_of_other_kinds_are_counted(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    files = "a.mov below/b.MP4 below/c.webm d.cr2 g.NEF e.psd .hidden.mp4 f.txt photo.jpg"
    for name in files.split():
        (tmp_path / name).touch()
    counts: Counter[str] = Counter()
    find_images([tmp_path, tmp_path / "a.mov"], passed_over=counts)
    assert counts == {"video": 3, "raw file": 2, "other picture": 1}
