from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from samples import Output, Patch, Refused, save_photo

from captioner.cli.caption_tables import CaptionTables
from captioner.cli.main import main
from captioner.errors import UserError

OPTIONS = ("json", "jsonl", "csv")


@pytest.fixture
def folder(tiny_model: Path, monkeypatch: Patch) -> Path:
    """The current folder, with the model and two photos."""
    monkeypatch.chdir(tiny_model.parent)
    for number, name in enumerate(("a.png", "=b.png")):
        save_photo(Path("photos") / name, number)
    return tiny_model.parent


def caption(*options: str) -> int:
    # One photo a batch: in another batch log-probabilities differ in their last digits.
    command = ["caption", "photos", "--model", "tiny-model", "--batch-size", "1"]
    return main([*command, "--format", "{path}", *options])


def read(path: str) -> list[dict[str, object]]:
    text = Path(path).read_text()
    lines = text.splitlines() if path.endswith("l") else [text]
    found = [json.loads(line) for line in lines]
    return found if path.endswith("l") else found[0]


def test_lines_are_written_as_they_come_and_tables_now_and_then(tmp_path: Path) -> None:
    places = {option: str(tmp_path / f"out.{option}") for option in OPTIONS}
    tables = CaptionTables(**places)
    tables.add("a.jpg", {"caption": "a dog"})
    assert read(places["jsonl"]) == [{"image": "a.jpg", "caption": "a dog"}]
    assert not Path(places["json"]).exists()
    tables.save_so_far()
    assert read(places["json"]) == read(places["jsonl"])
    tables.add("b.jpg", {"error": "b.jpg is not an image"})
    assert read(places["jsonl"])[1] == {"image": "b.jpg", "error": "b.jpg is not an image"}
    tables.save_so_far()
    assert len(read(places["json"])) == 1  # It rests for a time that depends on the last write's.
    tables._resting_until = 0.0
    tables.save_so_far()
    assert read(places["json"]) == read(places["jsonl"])
    assert Path(places["csv"]).read_text() == (
        "image,rank,caption,log_probability,score,error\n"
        "a.jpg,1,a dog,,,\nb.jpg,1,,,,b.jpg is not an image\n"
    )
    Path(places["json"]).unlink()
    Path(places["json"]).mkdir()
    tables._resting_until = 0.0
    tables.save_so_far()  # Left to `finish` to report.
    with pytest.raises(UserError, match=r"out\.json"):
        tables.finish()


@pytest.mark.parametrize("option", OPTIONS)
def test_only_what_is_missing_or_changed_is_captioned(
    option: str, folder: Path, capsys: Output
) -> None:
    (folder / "photos/bad.png").write_bytes(b"none")
    table = [f"--{option}", f"out.{option}"]
    assert caption(*table, "--n-best", "2", "--resume") == 2  # There is nothing to keep yet.
    before = Path(f"out.{option}").read_text()
    capsys.readouterr()
    assert caption(*table, "--n-best", "2", "--resume") == 2  # What failed is tried again.
    assert capsys.readouterr().out == ""
    assert sorted(Path(f"out.{option}").read_text()) == sorted(before)

    save_photo(folder / "photos/bad.png", 2)
    save_photo(folder / "photos/new.png", 3)
    os.utime("photos/a.png", (1, 1))
    assert caption(*table, "--n-best", "2", "--resume") == 0
    printed = capsys.readouterr()
    assert set(printed.out.splitlines()) == {"photos/a.png", "photos/bad.png", "photos/new.png"}
    assert "1 of 4 photos are captioned already" in printed.err
    once = Path(f"out.{option}").read_text()
    assert caption(f"--{option}", f"again.{option}", "--n-best", "2") == 0
    again = Path(f"again.{option}").read_text()
    if option == "json":
        assert sorted(json.loads(once), key=str) == sorted(json.loads(again), key=str)
    else:
        assert sorted(once.splitlines()) == sorted(again.splitlines())

    capsys.readouterr()
    assert caption(*table, "--resume") == 0
    assert capsys.readouterr().out == ""
    assert Path(f"out.{option}").read_text() == once


def test_records_of_other_photos_and_of_only_one_of_two_tables_are_kept(folder: Path) -> None:
    assert caption("--jsonl", "out.jsonl") == 0
    photo = str(save_photo(Path("other.png"), 5))
    command = ["caption", photo, "--model", "tiny-model", "--resume", "--json", "out.json"]
    assert main([*command, "--jsonl", "out.jsonl"]) == 0
    images = [record["image"] for record in read("out.jsonl")]
    assert images == ["photos/=b.png", "photos/a.png", "other.png"]
    assert read("out.json") == read("out.jsonl")


def test_of_two_tables_either_may_have_a_photo_s_caption(tmp_path: Path) -> None:
    first, second, third = photos = [str(save_photo(tmp_path / f"{n}.png", n)) for n in range(3)]
    places = {"json": str(tmp_path / "o.json"), "jsonl": str(tmp_path / "o.jsonl"), "csv": None}
    found = {
        "jsonl": {first: "caption", second: "error"},
        "json": dict.fromkeys(photos[1:], "caption"),
    }
    for option, records in found.items():
        table = CaptionTables(**{**dict.fromkeys(OPTIONS), option: places[option]})
        for photo, kind in records.items():
            table.add(photo, {kind: "a dog"})
        table.finish()
    tables = CaptionTables(**places)
    assert tables.resume(photos, lambda _: ()) == {first, second, third}
    tables.finish()
    for option in found:
        assert {record["image"] for record in read(places[option])} == set(photos)


def test_the_error_of_a_folder_is_kept_once(folder: Path) -> None:
    Path("photos/link").symlink_to(folder)
    for _ in range(3):
        assert caption("--json", "out.json", "--jsonl", "out.jsonl", "--resume") == 2
    assert [record["image"] for record in read("out.json") if "error" in record] == ["photos"]
    assert read("out.json") == read("out.jsonl")


@pytest.mark.parametrize("option", OPTIONS)
def test_captions_of_another_model_or_language_are_neither_kept_nor_replaced(
    option: str, tmp_path: Path
) -> None:
    photo, file = str(save_photo(tmp_path / "a.png", 0)), tmp_path / f"out.{option}"
    paths = {**dict.fromkeys(OPTIONS), option: str(file)}
    tables = CaptionTables(**paths, model="mine")
    tables.add(photo, {"caption": "ein Hund", "language": "de"})
    tables.finish()
    for same in ("mine", "./mine", "mine/"):
        assert CaptionTables(**paths, model=same).resume([photo], lambda _: (), "de") == {photo}
    for model, language, difference in (
        ("mine", None, "language de, not en"),
        ("default", "de", "model mine, not default"),
    ):
        with pytest.raises(UserError, match=f"out.{option} has captions of the {difference};"):
            CaptionTables(**paths, model=model).resume([photo], lambda _: (), language)


def test_a_record_that_names_no_model_is_kept(tmp_path: Path) -> None:
    photo, file = str(save_photo(tmp_path / "a.png", 0)), tmp_path / "out.jsonl"
    CaptionTables(None, str(file), None, "mine").add(photo, {"caption": "a dog"})
    file.write_text(file.read_text().replace('"model": "mine", ', ""))
    assert CaptionTables(None, str(file), None, "other").resume([photo], lambda _: ()) == {photo}


def test_only_the_photo_s_own_drawing_counts(tmp_path: Path) -> None:
    photo, drawing = str(save_photo(tmp_path / "a.png", 0)), tmp_path / "maps" / "a.png"
    table = {**dict.fromkeys(OPTIONS), "jsonl": str(tmp_path / "out.jsonl")}
    tables = CaptionTables(**table)
    tables.add(photo, {"caption": "a dog", "files": {"overlay": str(drawing)}})

    def finished(wanted: Path) -> set[str] | None:
        return CaptionTables(**table).resume([photo], lambda _: [("overlay", wanted)])

    of_another, too_long = save_photo(tmp_path / "b.png"), tmp_path / ("x" * 255 + ".png")
    assert finished(drawing) == finished(of_another) == finished(too_long) == set()
    save_photo(drawing)
    assert finished(drawing) == finished(tmp_path / "maps/../maps/a.png") == {photo}


def test_a_line_that_a_killed_run_left_is_made_whole(folder: Path, capsys: Output) -> None:
    assert caption("--jsonl", "out.jsonl") == 0
    whole = Path("out.jsonl").read_text()
    Path("out.jsonl").write_text(whole[:-9])
    capsys.readouterr()
    assert caption("--jsonl", "out.jsonl", "--resume") == 0
    assert capsys.readouterr().out == "photos/a.png\n"
    assert Path("out.jsonl").read_text() == whole


def test_a_photo_without_the_drawing_that_is_wanted_is_captioned_again(
    folder: Path, capsys: Output
) -> None:
    table = ["--json", "out.json"]
    assert caption(*table, "--overlay", "maps/") == 0
    files = [record["files"] for record in read("out.json")]
    assert files == [{"overlay": f"maps/{name}.png"} for name in ("=b", "a")]
    capsys.readouterr()
    drawn = [*table, "--overlay", "maps/", "--gif", "maps/", "--resume"]
    assert caption(*drawn) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert read("out.json")[0]["files"] == {"overlay": "maps/=b.png", "gif": "maps/=b.gif"}
    Path("maps/a.gif").unlink()
    assert caption(*drawn) == 0
    assert capsys.readouterr().out == "photos/a.png\n"
    assert caption(*drawn) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("option", [*OPTIONS, "html"])
def test_results_are_not_replaced_in_silence(option: str, folder: Path, capsys: Output) -> None:
    path = Path(f"out.{option}")
    path.write_text("kept")
    assert caption(f"--{option}", path.name) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"--{option} {path} exists; --overwrite replaces it" in printed.err
    assert ("--resume" in printed.err) == (option != "html")
    assert path.read_text() == "kept"
    assert caption(f"--{option}", path.name, "--overwrite") == 0
    assert path.read_text() != "kept"


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("json", '[{"image_id": 1, "caption": "a dog"}]', "holds no results of `captioner"),
        ("json", '{"image": "a.png"}', "holds no results of `captioner"),
        ("json", "[", "is not valid JSON"),
        ("jsonl", "[1]\n[2]\n", "holds no results of `captioner"),
        ("jsonl", "{\n}\n", "holds no results of `captioner"),
        ("csv", "name,price\nbread,2\n", "holds no results of `captioner"),
        ("csv", "image,rank,caption\na.png,2,a dog\n", "holds no results of `captioner"),
        ("csv", "image,rank,score\na.png,1,x\n", "holds no results of `captioner"),
        ("csv", "image,rank\na.png,1,2,3\n", "holds no results of `captioner"),
    ],
)
def test_another_file_is_not_resumed(option: str, content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / f"out.{option}"
    file.write_text(content)
    with pytest.raises(UserError, match=said):
        CaptionTables(**{**dict.fromkeys(OPTIONS), option: str(file)}).resume([], lambda _: ())
    assert file.read_text() == content


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--json", "-"], "--resume needs a file of --json, --jsonl or --csv"),
        (["--html", "o.html", "--json", "o.json"], "--resume cannot add to the page of --html"),
    ],
)
def test_what_cannot_be_resumed_is_refused(
    options: list[str], said: str, folder: Path, refused: Refused
) -> None:
    assert said in refused(["caption", "photos", "--resume", *options])


def test_progress_of_several_batches_goes_to_standard_error(folder: Path, capsys: Output) -> None:
    for options, shown in (
        (["--batch-size", "1"], True),
        (["--batch-size", "1", "--quiet"], False),
        ([], False),
    ):
        assert main(["caption", "photos", "--model", "tiny-model", *options]) == 0
        assert ("captioning: 2/2 photos" in capsys.readouterr().err) == shown
