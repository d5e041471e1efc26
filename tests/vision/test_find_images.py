"""From paths, folders and patterns to image files. No file here needs to be a real image."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from captioner.errors import UserError
from captioner.vision.find_images import find_images, passed_over_in_words


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with photos at several depths and things that are not photos."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "photos/b.jpg",
        "photos/a.PNG",
        "photos/notes.txt",
        "photos/.hidden.jpg",
        "photos/.thumbnails/small.jpg",
        "photos/trip/day 2/c.webp",
        "photos/trip/no_suffix",
        "documents/letter.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    return tmp_path


def names(*paths: str | Path) -> list[str]:
    return [path.as_posix() for path in find_images(paths)]


def test_a_folder_is_gone_through_to_the_bottom_and_sorted(here: Path) -> None:
    expected = ["photos/a.PNG", "photos/b.jpg", "photos/trip/day 2/c.webp"]
    assert names("photos") == names(Path("photos")) == expected
    assert names(here / "photos") == [(here / name).as_posix() for name in expected]


def test_what_is_named_outright_is_taken_in_its_order_whatever_it_is(here: Path) -> None:
    files = ["photos/notes.txt", "photos/b.jpg", "photos/.hidden.jpg", "photos/trip/no_suffix"]
    assert names(*files, "photos/b.jpg") == [*files, "photos/b.jpg"]
    assert names("photos/.thumbnails") == ["photos/.thumbnails/small.jpg"]


@pytest.mark.parametrize("path", ["missing.jpg", "a\0/*.jpg", ""])
def test_a_path_of_nothing_comes_back_as_it_is(here: Path, path: str) -> None:
    assert find_images(["photos/b.jpg", path]) == [Path("photos/b.jpg"), Path(path)]


@pytest.mark.parametrize("pattern", ["missing/*.jpg", "photos/[z-a].jpg", "photos/["])
def test_a_pattern_that_matches_nothing_is_reported(here: Path, pattern: str) -> None:
    reports: list[str] = []
    assert find_images(["photos/b.jpg", pattern], reports.append) == [Path("photos/b.jpg")]
    assert reports == [f"{pattern} matches no file"]


def test_a_broken_link_comes_back_to_be_reported(here: Path) -> None:
    os.symlink("nowhere", "photos/link.jpg")
    assert names("photos/link.jpg") == ["photos/link.jpg"]
    assert "photos/link.jpg" in names("photos")


def test_a_link_that_leads_back_up_is_not_followed_for_ever(here: Path) -> None:
    os.symlink("..", "photos/trip/up")
    problems: list[str] = []
    images = [path.as_posix() for path in find_images(["photos"], problems.append)]
    assert images == ["photos/a.PNG", "photos/b.jpg", "photos/trip/day 2/c.webp"]
    (problem,) = problems
    assert problem.startswith(f"folder {Path('photos/trip/up')} is a symbolic link")
    with pytest.raises(UserError, match="is a symbolic link and was not entered"):
        find_images(["photos"])


@pytest.mark.parametrize("folder", ["empty", "documents"])
def test_a_folder_without_images_is_refused_by_name(here: Path, folder: str) -> None:
    with pytest.raises(UserError, match=f"^folder {folder} holds no images"):
        find_images(["photos", folder])


def test_a_folder_that_cannot_be_read_is_refused_by_name(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def scandir(path: str) -> object:
        if os.fspath(path).endswith("trip"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(UserError, match=r"^cannot read folder photos.trip: Permission denied$"):
        find_images(["photos"])
    problems: list[str] = []
    assert find_images(["photos"], problems.append) == [Path("photos/a.PNG"), Path("photos/b.jpg")]
    assert problems == [f"cannot read folder {Path('photos/trip')}: Permission denied"]


def test_patterns(here: Path) -> None:
    assert names("photos/?.*") == ["photos/a.PNG", "photos/b.jpg"]
    assert names("photos/[b-c].jpg") == ["photos/b.jpg"]
    assert names("photos/**/*.webp") == ["photos/trip/day 2/c.webp"]
    # As if the shell had put the matches there: a file is a file, a folder is gone through.
    assert names("photos/*") == [
        "photos/a.PNG",
        "photos/b.jpg",
        "photos/notes.txt",
        "photos/trip/day 2/c.webp",
    ]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(here: Path) -> None:
    Path("photos/[b].jpg").write_bytes(b"x")
    assert names("photos/[b].jpg") == ["photos/[b].jpg"]


def test_files_of_other_kinds_are_counted(tmp_path: Path) -> None:
    for name in (
        "a.mov",
        "below/b.MP4",
        "below/c.webm",
        "d.cr2",
        "g.NEF",
        "e.psd",
        ".hidden.mp4",
        "f.txt",
    ):
        path = tmp_path / "kinds" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    counts: Counter[str] = Counter()
    find_images([tmp_path / "kinds", tmp_path / "kinds" / "a.mov"], lambda problem: None, counts)
    assert counts == {"video": 3, "raw file": 2, "other picture": 1}
    assert passed_over_in_words(counts) == "3 videos, 2 raw files and 1 other picture were not read"
    assert passed_over_in_words(Counter({"video": 1})) == "1 video was not read"
    assert passed_over_in_words(Counter()) == ""
