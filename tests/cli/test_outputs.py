"""Tables, drawings and pages of captions: what is written, kept, resumed and refused."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image
from samples import Output, Patch, Refused, make_captioner, save_photo

from captioner.caption.captioner import Captioned, caption_photos, named_photos
from captioner.cli.main import main
from captioner.cli.outputs import Outputs, _output_names
from captioner.errors import UserError
from captioner.outcomes import Failed

CAPTION = ["caption", "--model", "tiny-model"]


@pytest.fixture
def folder(tiny_model: Path, monkeypatch: Patch) -> Path:
    """The current folder, with the model and two photos in the folder `photos`."""
    monkeypatch.chdir(tiny_model.parent)
    for number, name in enumerate(("a.png", "=b.png")):
        save_photo(Path("photos") / name, number)
    return tiny_model.parent


def caption(*options: str) -> int:
    # One photo a batch: in another batch log-probabilities differ in their last digits.
    command = [*CAPTION, "photos", "--batch-size", "1", "--format", "{path}"]
    return main([*command, *options])


def captioned(paths: Sequence[str]) -> list[Captioned]:
    found = list(caption_photos(make_captioner(), named_photos(paths)))
    return [item for item in found if isinstance(item, Captioned)]


def lines(path: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


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


def test_lines_are_written_as_they_come_and_tables_at_the_end(tmp_path: Path) -> None:
    places = {kind: str(tmp_path / f"out.{kind}") for kind in ("json", "jsonl", "csv")}
    outputs = Outputs(["a.jpg", "b.jpg"], **places)
    for number, photo in enumerate(("a.jpg", "b.jpg"), start=1):
        outputs.add(Failed(photo, f"{photo} is not an image"))
        assert len(lines(places["jsonl"])) == number
    assert not Path(places["json"]).exists()
    outputs.finish()
    assert json.loads(Path(places["json"]).read_text()) == lines(places["jsonl"])
    assert Path(places["csv"]).read_text() == (
        "image,rank,caption,log_probability,score,error\n"
        "a.jpg,1,,,,a.jpg is not an image\nb.jpg,1,,,,b.jpg is not an image\n"
    )


def test_only_what_is_missing_or_changed_is_captioned(folder: Path, capsys: Output) -> None:
    (folder / "photos/bad.png").write_bytes(b"none")
    table = ["--jsonl", "out.jsonl", "--json", "out.json", "--csv", "out.csv", "--n-best", "2"]
    resumed = [*table, "--overlay", "maps/", "--resume"]
    assert caption(*resumed) == 2  # There is nothing to keep yet.
    before = Path("out.jsonl").read_text()
    capsys.readouterr()
    assert caption(*resumed) == 2  # What failed is tried again.
    assert capsys.readouterr().out == ""
    assert sorted(Path("out.jsonl").read_text()) == sorted(before)

    save_photo(folder / "photos/bad.png", 2)
    save_photo(folder / "photos/new.png", 3)
    os.utime("photos/a.png", (1, 1))
    assert caption(*resumed) == 0
    printed = capsys.readouterr()
    assert set(printed.out.splitlines()) == {"photos/a.png", "photos/bad.png", "photos/new.png"}
    assert "1 of 4 photos are captioned already" in printed.err
    assert json.loads(Path("out.json").read_text()) == lines("out.jsonl")
    table[1] = "again.jsonl"
    assert caption(*table, "--overlay", "maps/", "--overwrite") == 0
    assert sorted(lines("again.jsonl"), key=str) == sorted(lines("out.jsonl"), key=str)

    Path("maps/a.png").unlink()
    capsys.readouterr()
    assert caption(*resumed) == 0
    assert set(capsys.readouterr().out.splitlines()) == {"photos/a.png"}
    assert Path("maps/a.png").is_file()
    once = Path("out.jsonl").read_text()
    assert caption(*resumed) == 0
    assert Path("out.jsonl").read_text() == once
    assert caption(*resumed, "--gif", "gifs/") == 0  # A drawing that is wanted now.
    assert len(list(Path("gifs").iterdir())) == 4


def test_a_line_that_a_killed_run_left_is_made_whole(folder: Path, capsys: Output) -> None:
    assert caption("--jsonl", "out.jsonl") == 0
    whole = Path("out.jsonl").read_text()
    Path("out.jsonl").write_text(whole[:-9])
    capsys.readouterr()
    assert caption("--jsonl", "out.jsonl", "--resume") == 0
    assert capsys.readouterr().out == "photos/a.png\n"
    assert Path("out.jsonl").read_text() == whole


def test_records_of_other_photos_are_kept(folder: Path) -> None:
    (folder / "photos/bad.png").write_bytes(b"none")
    assert caption("--jsonl", "out.jsonl") == 2
    photo = str(save_photo(Path("other.png"), 5))
    assert main([*CAPTION, photo, "--resume", "--jsonl", "out.jsonl"]) == 0
    found = [record["image"] for record in lines("out.jsonl")]
    assert found == ["photos/=b.png", "photos/a.png", "photos/bad.png", "other.png"]


def test_the_error_of_a_folder_is_kept_once(folder: Path) -> None:
    Path("photos/link").symlink_to(folder)
    for _ in range(3):
        assert caption("--jsonl", "out.jsonl", "--resume") == 2
    found = [record["image"] for record in lines("out.jsonl") if "error" in record]
    assert found == ["photos"]


def test_captions_of_another_model_or_language_are_neither_kept_nor_replaced(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = {"image": "a.png", "caption": "ein Hund", "language": "de", "model": "mine"}
    Path("out.jsonl").write_text(json.dumps(record) + "\n")
    for same in ("mine", "./mine", "mine/"):
        Outputs(["b.png"], jsonl="out.jsonl", resume=True, model=same, language="de")
    for model, language, difference in (
        ("mine", None, "language de, not en"),
        ("default", "de", "model mine, not default"),
    ):
        with pytest.raises(UserError, match=rf"out\.jsonl has captions of the {difference};"):
            Outputs(["b.png"], jsonl="out.jsonl", resume=True, model=model, language=language)


@pytest.mark.parametrize("content", ["[]", '{"image": 3}', "no JSON", '{"image": "a", "files": 1}'])
def test_other_lines_are_neither_kept_nor_replaced(content: str, folder: Path) -> None:
    Path("out.jsonl").write_text(f"{content}\n")
    with pytest.raises(UserError, match=r"--jsonl out\.jsonl holds no results of `captioner"):
        Outputs(["a.png"], jsonl="out.jsonl", resume=True)
    assert Path("out.jsonl").read_text() == f"{content}\n"


@pytest.mark.parametrize(
    "option",
    [
        *("--json out.json", "--jsonl out.jsonl", "--csv out.csv", "--html page.html"),
        *("--overlay a.png", "--overlay photos", "--gif a.gif", "--words words"),
    ],
)
def test_what_exists_needs_overwrite(option: str, folder: Path, refused: Refused) -> None:
    for name in ("out.json", "out.jsonl", "out.csv", "page.html", "a.png", "a.gif"):
        Path(name).write_text("kept")
    Path("words/a").mkdir(parents=True)
    Path("words/a/01_old.png").write_text("kept")
    before = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    command = [*CAPTION, "photos/a.png", *option.split()]
    assert "exists; --overwrite replaces it" in refused(command)
    assert {path: path.read_bytes() for path in before} == before
    assert main([*command, "--overwrite"]) == 0
    assert {path for path in before if not path.exists()} == (
        {folder / "words/a/01_old.png"} if "words" in option else set()
    )
    assert sum(path.exists() and path.read_bytes() != before[path] for path in before) == (
        0 if "--words" in option else 1
    )


def test_an_empty_file_may_be_written(folder: Path) -> None:
    Path("out.json").touch()  # As `mktemp` makes it.
    assert caption("--json", "out.json") == 0


def test_word_pictures_replace_no_photo_of_the_run(tmp_path: Path) -> None:
    photos = [str(save_photo(tmp_path / name)) for name in ("0.png", "0/01_dog.png")]
    outputs = Outputs(photos, words=str(tmp_path), overwrite=True)
    for item in captioned(photos):
        outputs.add(item)
    assert Path(photos[1]).is_file()


def test_a_large_photo_is_drawn_as_such_and_captioned_as_without_a_drawing(folder: Path) -> None:
    save_photo(folder / "large.jpg", size=(2800, 2100))
    found = []
    for drawing in ([], ["--words", "words"]):
        assert main([*CAPTION, "large.jpg", *drawing, "--json", "o.json", "--overwrite"]) == 0
        (record,) = json.loads(Path("o.json").read_text())
        record.pop("files", None)
        found.append(record)
    assert found[0] == found[1]
    with Image.open(min(Path("words/large").iterdir())) as picture:
        assert picture.size == (1024, 768)


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ({"json": "folder"}, "--json folder is a folder, not a file"),
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
        ({"overlay": "m.png", "strength": 3}, "--strength 3 is not between 0 and 1"),
        ({"resume": True}, "--resume needs --jsonl FILE"),
        ({"resume": True, "json": "out.json"}, "--resume needs --jsonl FILE"),
        ({"resume": True, "jsonl": "-"}, "--resume needs --jsonl FILE"),
        ({"resume": True, "jsonl": "o.jsonl", "html": "o.html"}, "--resume cannot add to the page"),
        ({"json": "-", "csv": "-"}, "--json and --csv cannot both be standard output"),
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
        outputs = Outputs(given, overlay=str(tmp_path / "maps.v2") + "/", overwrite=True)
        for item in captioned(given):
            outputs.add(item)
    assert sorted(path.name for path in (tmp_path / "maps.v2").iterdir()) == ["0.png", "1.png"]


def test_names_are_those_of_the_photos_below_their_common_folder() -> None:
    def names(*paths: str) -> list[str]:
        return list(_output_names(paths).values())

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


@pytest.mark.parametrize(("option", "place"), [("overlay", "maps"), ("words", "maps/photo")])
def test_what_a_killed_run_left_is_removed(option: str, place: str, tmp_path: Path) -> None:
    photo = str(save_photo(tmp_path / "photo.png"))
    left = tmp_path / place / ".captioner-photo-x.png"
    left.parent.mkdir(parents=True)
    left.touch()
    os.utime(left, (1, 1))
    Outputs(paths=[photo], overwrite=True, **{option: f"{tmp_path / 'maps'}/"})
    assert not left.exists()
