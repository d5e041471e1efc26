from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image
from samples import Patch, make_captioner, save_photo

from captioner.caption.captioner import Captioned, caption_photos, named_photos
from captioner.cli import caption_outputs as outputs_module
from captioner.cli.caption_outputs import Outputs
from captioner.errors import UserError


def captioned(paths: Sequence[str]) -> list[Captioned]:
    found = list(caption_photos(make_captioner(), named_photos(paths)))
    return [item for item in found if isinstance(item, Captioned)]


def test_everything_is_written(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [str(save_photo(Path(folder, "same.png"), n)) for n, folder in enumerate("ab")]
    places = {"overlay": "overlays", "gif": "gifs", "words": "words"}
    outputs = Outputs(paths=paths, json="out.json", html="out.html", **places)
    items = captioned(paths)
    for item in items:
        outputs.add(item)
    outputs.finish()
    records = json.loads(Path("out.json").read_text())
    assert [record["image"] for record in records] == paths
    assert [record["caption"] for record in records] == [item.caption.text for item in items]
    # Two photos of one name do not overwrite each other.
    for name, item in zip(("a/same", "b/same"), items, strict=True):
        assert Path("overlays", f"{name}.png").is_file()
        assert len(list(Path("words", name).iterdir())) == len(item.caption.words)
        with Image.open(Path("gifs", f"{name}.gif")) as gif:
            assert gif.n_frames >= 1
    assert Path("out.html").read_text().count("data:image/jpeg") == 2


def test_a_large_photo_is_drawn_as_large_as_before(tmp_path: Path) -> None:
    path = str(save_photo(tmp_path / "large.jpg", size=(2800, 2100)))
    assert Outputs([path], json=str(tmp_path / "out.json")).drawn_side == 0
    sizes, regions = [], []
    for place in ("reduced", "whole"):
        outputs = Outputs([path], words=str(tmp_path / place))
        side = outputs.drawn_side if place == "reduced" else None
        (item,) = caption_photos(make_captioner(), named_photos([path], side))
        assert item.photo.size == ((1400, 1050) if place == "reduced" else (2800, 2100))
        outputs.add(item)
        with Image.open(min((tmp_path / place / "large").iterdir())) as picture:
            sizes.append(picture.size)
        regions.append(item.caption.region)
    assert sizes[0] == sizes[1]
    assert regions[0] == regions[1]


@pytest.mark.parametrize(
    ("photos", "option", "place"),
    [
        (["p/0.png", "p/1.png"], "overlay", "p"),
        (["p/0.gif", "p/1.gif"], "gif", "p"),
        (["0.png"], "overlay", "folder/../0.png"),
        (["0.png"], "overlay", "link.png"),
        (["0.png"], "overlay", "same-file.png"),
        (["a/0/01_dog.png", "a/0.png"], "words", "a"),
        (["in/0.jpg"], "overlay", "other/0.png"),  # A photo that is not captioned.
        (["in/0.jpg"], "gif", "other/"),
    ],
)
def test_a_photo_is_never_written_over(
    photos: list[str], option: str, place: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    for photo in (*photos, "other/0.png", "other/0.gif"):
        save_photo(Path(photo))
    if place == "link.png":
        Path("link.png").symlink_to("0.png")
    if place == "same-file.png":
        os.link("0.png", place)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    said = rf"PATH and --{option} are the same file|--{option} would replace .*, which is a photo"
    with pytest.raises(UserError, match=said):
        Outputs(photos, **{option: place})
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


@pytest.mark.parametrize(("option", "name"), [("overlay", "0.png"), ("gif", "0.gif")])
def test_a_drawing_and_an_empty_file_may_be_replaced(
    option: str, name: str, tmp_path: Path
) -> None:
    photo = str(save_photo(tmp_path / "0.jpg"))
    (tmp_path / name).touch()  # As `mktemp` makes them.
    (item,) = captioned([photo])
    for _ in range(2):
        Outputs([photo], **{option: str(tmp_path / name)}).add(item)


def test_a_photo_may_lie_beside_its_word_pictures(tmp_path: Path) -> None:
    photo = str(save_photo(tmp_path / "0.png"))
    Outputs([photo], words=str(tmp_path), overlay=str(tmp_path / "maps.png"))


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ({"overlay": "s.png", "words": "x/../s.png/"}, "--overlay .*s.png is a file, but --words"),
        ({"json": "folder"}, "--json folder is a folder, not a file"),
        ({"json": "o.json", "words": "o.json/words"}, "--json .*o.json is a file, but --words nee"),
        ({"html": "file.txt/page.html"}, "--html needs file.txt to be a folder, but it is a file"),
        ({"words": "file.txt/"}, "--words needs file.txt to be a folder"),
        ({"words": "out.png"}, r"--words out\.png must end in a slash for a folder"),
        ({"overlay": "out.bmp"}, r"--overlay out\.bmp must end in \.png or .* or a slash"),
        ({"gif": "out.png"}, r"--gif out\.png must end in \.gif or a slash"),
        ({"overlay": "-"}, r"--overlay cannot go to standard output; name a file or folder"),
        ({"html": "out.pdf"}, r"--html out\.pdf must end in \.html or \.htm$"),
        ({"json": "out.csv"}, r"--json out\.csv must end in \.json$"),
        ({"csv": "out"}, r"--csv out must end in \.csv$"),
        ({"json": ""}, "--json is empty"),
        ({"overlay": "m.png", "paths": ["a.jpg", "b.jpg"]}, r"m\.png is one file, but there are 2"),
        ({"overlay": "m.png", "strength": 3}, "strength 3 is not between 0 and 1"),
    ],
)
def test_places_that_cannot_be_written_are_refused_before_work_starts(
    places: dict[str, str], sentence: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").write_text("kept")
    photo = str(save_photo(tmp_path / "0.png"))
    with pytest.raises(UserError, match=sentence):
        Outputs(**{"paths": [photo], **places})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.png", "file.txt", "folder"]


def test_a_slash_at_the_end_makes_a_folder_whatever_its_name(tmp_path: Path) -> None:
    paths = [str(save_photo(tmp_path / f"{number}.png", number)) for number in range(2)]
    for given in (paths, paths[:1]):
        outputs = Outputs(given, overlay=str(tmp_path / "maps.v2") + "/")
        for item in captioned(given):
            outputs.add(item)
    assert sorted(path.name for path in (tmp_path / "maps.v2").iterdir()) == ["0.png", "1.png"]


def test_names_are_those_of_the_photos_below_their_common_folder() -> None:
    def names(*paths: str) -> list[str]:
        return list(outputs_module._output_names(paths).values())

    assert names("p/a/x.jpg") == ["x"]
    assert names("p/x.jpg", "p/y.jpg", "p/x.jpg") == ["x", "y"]
    assert names("p/a/x.jpg", "p/b/x.jpg") == [str(Path("a/x")), str(Path("b/x"))]
    assert names("p/x.jpg", "p/x.png") == ["x.jpg", "x.png"]
    assert names("p/Dog.png", "p/dog.png", "p/dog.png-2.png") == [
        *("Dog.png", "dog.png-2", "dog.png-2-2")
    ]
    assert names("-", "p/x.jpg") == ["standard_input", "x"]


def test_one_file_that_fails_does_not_take_the_others_along(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    photo = str(save_photo(Path("0.png")))
    places = {"overlay": "maps/0.png", "gif": "maps.gif", "html": "out.html"}
    outputs = Outputs([photo], json="out.json", csv="out.csv", **places)
    Path("maps").write_text("in the way")
    Path("out.json").mkdir()
    (item,) = captioned([photo])
    with pytest.raises(UserError, match=r"maps.0\.png"):
        outputs.add(item)
    assert Path("maps.gif").is_file()
    with pytest.raises(UserError, match=r"out\.json"):
        outputs.finish()
    assert Path("out.csv").is_file()
    assert Path("out.html").is_file()


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    photo = str(save_photo(tmp_path / "photo.png"))
    left = tmp_path / "maps" / ".captioner-photo-x.png"
    left.parent.mkdir()
    left.touch()
    os.utime(left, (1, 1))
    Outputs(paths=[photo], overlay=f"{tmp_path / 'maps'}/")
    assert not left.exists()
