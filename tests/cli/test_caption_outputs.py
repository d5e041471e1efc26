from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from samples import Patch, make_captioner, save_photo

from captioner.caption.caption_photos import Captioned, caption_photos, named_photos
from captioner.cli import caption_outputs as outputs_module
from captioner.cli.caption_outputs import Outputs
from captioner.errors import UserError


def captioned(paths: Sequence[str]) -> list[Captioned]:
    found = list(caption_photos(make_captioner(), named_photos(paths)))
    return [item for item in found if isinstance(item, Captioned)]


def test_everything_is_written(tmp_path: Path) -> None:
    paths = [str(save_photo(tmp_path / folder / "same.png", n)) for n, folder in enumerate("ab")]
    outputs = Outputs(
        paths=paths,
        json=str(tmp_path / "out.json"),
        html=str(tmp_path / "out.html"),
        overlay=str(tmp_path / "overlays"),
        gif=str(tmp_path / "gifs"),
        words=str(tmp_path / "words"),
    )
    captions = []
    for item in captioned(paths):
        captions.append(item.caption)
        outputs.add(item)
    outputs.finish()
    records = json.loads((tmp_path / "out.json").read_text())
    assert [record["image"] for record in records] == paths
    for record, caption in zip(records, captions, strict=True):
        assert record["caption"] == caption.text
    # Two photos of one name do not overwrite each other.
    for name, caption in zip(("a/same", "b/same"), captions, strict=True):
        assert (tmp_path / "overlays" / f"{name}.png").is_file()
        assert len(list((tmp_path / "words" / name).iterdir())) == len(caption.words)
        with Image.open(tmp_path / "gifs" / f"{name}.gif") as gif:
            assert gif.n_frames >= 1
    page = (tmp_path / "out.html").read_text()
    assert page.count("data:image/jpeg") == 2


def test_a_large_photo_is_drawn_as_large_as_before(tmp_path: Path) -> None:
    path = str(save_photo(tmp_path / "large.jpg", size=(2800, 2100)))
    assert Outputs([path], json=str(tmp_path / "out.json")).drawn_side == 0
    sizes, regions = [], []
    for place in ("reduced", "whole"):
        outputs = Outputs([path], words=str(tmp_path / place), html=str(tmp_path / f"{place}.html"))
        side = outputs.drawn_side if place == "reduced" else None
        (item,) = caption_photos(make_captioner(), named_photos([path], side))
        assert item.photo.size == ((1400, 1050) if place == "reduced" else (2800, 2100))
        outputs.add(item)
        outputs.finish()
        with Image.open(min((tmp_path / place / "large").iterdir())) as picture:
            sizes.append(picture.size)
        regions.append(item.caption.region)
    assert sizes[0] == sizes[1]
    assert regions[0] == regions[1]


def test_one_file_for_many_photos_is_refused_before_work_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"maps\.png"):
        Outputs(["a.jpg", "b.jpg"], overlay=str(tmp_path / "maps.png"))


@pytest.mark.parametrize(
    ("photos", "option", "place"),
    [
        (["p/0.png", "p/1.png"], "overlay", "p"),
        (["p/0.gif", "p/1.gif"], "gif", "p"),
        (["0.png"], "overlay", "0.png"),
        (["0.png"], "overlay", "folder/../0.png"),
        (["0.png"], "overlay", "link.png"),
        (["0.png"], "overlay", "same-file.png"),
        (["a/0/01_dog.png", "a/0.png"], "words", "a"),
    ],
)
def test_a_photo_is_never_written_over(
    photos: list[str], option: str, place: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    for photo in photos:
        save_photo(Path(photo))
    if place == "link.png":
        Path("link.png").symlink_to("0.png")
    if place == "same-file.png":
        os.link("0.png", place)
    before = {photo: Path(photo).read_bytes() for photo in photos}
    said = rf"PATH and --{option} are the same file|--{option} would replace .*, which is a photo"
    with pytest.raises(UserError, match=said):
        Outputs(photos, **{option: place})
    assert {photo: Path(photo).read_bytes() for photo in photos} == before


@pytest.mark.parametrize(("option", "name"), [("overlay", "0.png"), ("gif", "0.gif")])
def test_a_photo_that_is_not_captioned_is_not_replaced_either(
    option: str, name: str, tmp_path: Path
) -> None:
    photo = str(save_photo(tmp_path / "in" / "0.jpg"))
    other = save_photo(tmp_path / "out" / name)
    before = other.read_bytes()
    for place in (other, f"{other.parent}/"):
        with pytest.raises(UserError, match=f"--{option} would replace .*, which is a photo"):
            Outputs([photo], **{option: str(place)})
    word = save_photo(tmp_path / "words" / "0" / "01_a.png")
    with pytest.raises(UserError, match=r"--words would replace .*, which is a photo"):
        Outputs([photo], words=str(word.parents[1]))
    assert other.read_bytes() == before
    other.write_bytes(b"")  # As `mktemp` makes them.
    (item,) = captioned([photo])
    for _ in range(2):
        Outputs([photo], **{option: str(other)}).add(item)


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
    ],
)
def test_places_that_cannot_be_written_are_refused_before_work_starts(
    places: dict[str, str], sentence: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").write_text("kept")
    with pytest.raises(UserError, match=sentence):
        Outputs([str(save_photo(tmp_path / "0.png"))], **places)
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


def test_word_pictures_of_an_earlier_caption_are_removed_and_nothing_else(tmp_path: Path) -> None:
    photo = str(save_photo(tmp_path / "0.png"))
    outputs = Outputs([photo], words=str(tmp_path / "words"))
    (item,) = captioned([photo])
    folder = tmp_path / "words" / "0"
    long = replace(
        item.caption,
        words=item.caption.words * 2,
        attention=torch.cat([item.caption.attention] * 2),
    )
    outputs.add(replace(item, caption=long))
    count = len(item.caption.words)
    assert len(list(folder.iterdir())) == 2 * count
    for name in ("01_holiday.png", "notes.png"):
        save_photo(folder / name)
    outputs.add(item)
    written = [f"{n:02}_{word}.png" for n, word in enumerate(item.caption.words, start=1)]
    assert {path.name for path in folder.iterdir()} == {*written, "01_holiday.png", "notes.png"}


def test_one_file_that_fails_does_not_take_the_others_along(tmp_path: Path) -> None:
    photo = str(save_photo(tmp_path / "0.png"))
    outputs = Outputs(
        [photo],
        json=str(tmp_path / "out.json"),
        csv=str(tmp_path / "out.csv"),
        html=str(tmp_path / "out.html"),
        overlay=str(tmp_path / "maps" / "0.png"),
        gif=str(tmp_path / "maps.gif"),
    )
    (tmp_path / "maps").write_text("in the way")
    (tmp_path / "out.json").mkdir()
    (item,) = captioned([photo])
    with pytest.raises(UserError, match=r"maps.0\.png"):
        outputs.add(item)
    assert (tmp_path / "maps.gif").is_file()
    with pytest.raises(UserError, match=r"out\.json"):
        outputs.finish()
    assert (tmp_path / "out.csv").is_file()
    assert (tmp_path / "out.html").is_file()


def test_no_photo_is_kept_for_the_page(tmp_path: Path) -> None:
    photo = str(save_photo(tmp_path / "0.png", size=(2000, 1500)))
    outputs = Outputs([photo], html=str(tmp_path / "out.html"))
    (item,) = captioned([photo])
    outputs.add(item)
    (kept,) = outputs._page
    assert not any(isinstance(value, Image.Image) for value in vars(kept).values())
    assert len(kept.address) < 300_000 < len(item.photo.tobytes())


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    photo = str(save_photo(tmp_path / "photo.png"))
    left = tmp_path / "maps" / ".captioner-photo-x.png"
    left.parent.mkdir()
    left.touch()
    os.utime(left, (1, 1))
    Outputs(paths=[photo], overlay=f"{tmp_path / 'maps'}/")
    assert not left.exists()
