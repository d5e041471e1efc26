"""Tables, drawings and pages of captions: what is written, kept and resumed."""

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet
from samples import CAPTION, Output, Patch, Refused, photo_bytes, save_photo, write_tar

from captioner.cli.main import main
from captioner.files import file_lock
from captioner.loading import load
from captioner.outcomes import Failed
from captioner.outputs.drawings import output_names
from captioner.outputs.options import OutputOptions
from captioner.outputs.outputs import opened_outputs
from captioner.tables import csv_text


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


def lines(path: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_everything_is_written(folder: Path) -> None:
    paths = [str(save_photo(Path(name, "same.png"), n)) for n, name in enumerate("ab")]
    drawings = ["--overlay", "overlays.v2/", "--gif", "gifs", "--words", "words"]
    assert main([*CAPTION, *paths, *drawings, "--json", "o.json", "--html", "o.html"]) == 0
    records = json.loads(Path("o.json").read_text())
    assert [record["image"] for record in records] == paths
    # Two photos of one name do not overwrite each other.
    for name, record in zip(("a/same", "b/same"), records, strict=True):
        written = {"overlay": f"overlays.v2/{name}.png", "gif": f"gifs/{name}.gif"}
        assert record["files"] == {**written, "words": f"words/{name}"}
        assert Path(record["files"]["overlay"]).is_file()
        assert len(list(Path("words", name).iterdir())) == len(record["words"])
        with Image.open(record["files"]["gif"]) as gif:
            assert gif.n_frames >= 1
    assert Path("o.html").read_text().count("data:image/jpeg") == 2


def test_lines_are_written_as_they_come_and_tables_at_the_end(folder: Path) -> None:
    photos = {name: name for name in ("a.jpg", "b.jpg")}
    options = OutputOptions(json="out.json", jsonl="out.jsonl", csv="out.csv", csv_for="excel")
    failures = [Failed(photo, f"{photo} is not an image") for photo in photos]
    with opened_outputs(options, photos) as outputs:
        for number, record in enumerate(outputs.write(failures), start=1):
            assert record.error == f"{record.image} is not an image"
            assert len(lines("out.jsonl")) == number
        assert not Path("out.json").exists()
    assert json.loads(Path("out.json").read_text()) == lines("out.jsonl")
    assert Path("out.csv").read_text(encoding="utf-16").replace("\t", ",") == (
        "image,rank,caption,log_probability,score,model,error\n"
        "a.jpg,1,,,,default,a.jpg is not an image\nb.jpg,1,,,,default,b.jpg is not an image\n"
    )


def test_maps_are_saved_as_numbers(folder: Path, refused: Refused) -> None:
    Path("photos/broken.png").write_text("no photo")
    options = ["--jsonl", "o.jsonl", "--save-maps", "maps.npz"]
    assert caption(*options) == 2
    captions = load("tiny-model", engine="torch").caption(
        ["photos/=b.png", "photos/a.png"], batch_size=1
    )
    saved = np.load("maps.npz")
    assert saved["names"].tolist() == ["photos/=b.png", "photos/a.png"]
    for number, each in enumerate(captions):
        assert saved[f"words_{number}"].tolist() == list(each.words)
        np.testing.assert_allclose(saved[f"maps_{number}"], each.attention, atol=1e-5)
        assert saved[f"maps_{number}"].shape == (len(each.words), 4, 4)
    changed = Path("o.jsonl").read_text().replace(captions[0].text, "my own words", 1)
    Path("o.jsonl").write_text(changed)
    # All photos again, with the model's words; a table of lists.
    assert caption("--jsonl", "o.jsonl", "--resume", "--save-maps", "maps.parquet") == 2
    rows = parquet.read_table("maps.parquet").to_pylist()
    for number, row in enumerate(rows):
        assert (row["image"], row["words"]) == (saved["names"][number], [*captions[number].words])
        maps = np.reshape(row["maps"], row["shape"])
        np.testing.assert_allclose(maps, saved[f"maps_{number}"], atol=1e-6)
    sentence_ = refused([*CAPTION, "photos", "--save-maps", "maps.txt"])
    assert "maps.txt: its name must end in .npz or .parquet" in sentence_


@pytest.mark.slow
def test_the_documented_example_writes_as_the_command(folder: Path) -> None:
    for number in range(2):
        save_photo(Path("photos", f"{number}.jpg"), number)
    page = (Path(__file__).parents[2] / "docs" / "captioning.md").read_text("utf-8")
    example = page[page.index("import captioner\nfrom captioner.caption.captioner") :].partition(
        "```"
    )[0]
    exec(compile(example, "docs/captioning.md", "exec"), {})
    photos = [f"photos/{number}.jpg" for number in range(2)]
    assert [record["image"] for record in lines("found.jsonl")] == photos
    by_python = Path("found.csv").read_text()
    assert {path.name for path in Path("found").iterdir()} == {"0.png", "1.png"}
    assert Path("photos/1.jpg.xmp").is_file()
    options = ["--jsonl", "found.jsonl", "--csv", "found.csv", "--overlay", "found/"]
    assert main(["caption", *photos, *options, "--xmp-for", "digikam", "--overwrite"]) == 0
    assert Path("found.csv").read_text() == by_python


def test_names_are_those_of_the_photos_below_their_common_folder() -> None:
    def names(*paths: str) -> list[str]:
        return list(output_names(paths).values())

    assert names("p/a/x.jpg") == ["x"]
    assert names("p/x.jpg", "p/y.jpg", "p/x.jpg") == ["x", "y"]
    assert names("p/a/x.jpg", "p/b/x.jpg") == [str(Path("a/x")), str(Path("b/x"))]
    assert names("p/x.jpg", "p/x.png") == ["x.jpg", "x.png"]
    assert names("x.jpg", "x.png", "x.jpg.gif") == ["x.jpg", "x.png", "x.jpg.gif"]
    assert names("p/Dog.png", "p/dog.png", "p/cat.png") == ["Dog.png", "dog.png", "cat"]
    assert names("-", "p/x.jpg") == ["standard_input", "x"]


def test_only_what_is_missing_or_changed_is_captioned(folder: Path, capsys: Output) -> None:
    def captioned(*options: str) -> set[str]:
        capsys.readouterr()
        assert caption(*resumed, *options) == (2 if bad.read_bytes() == b"none" else 0)
        return {*capsys.readouterr().out.splitlines()}

    bad = Path("photos/bad.png")
    bad.write_bytes(b"none")
    table = ["--jsonl", "out.jsonl", "--json", "out.json", "--n-best", "2"]
    resumed = [*table, "--overlay", "maps/", "--html", "page.html", "--resume"]
    assert len(captioned()) == 2  # There is nothing to keep yet.
    before = Path("out.jsonl").read_text()
    assert captioned() == set()  # What failed is tried again.
    assert sorted(Path("out.jsonl").read_text()) == sorted(before)

    for number, name in enumerate(("bad", "new", "a"), start=2):
        save_photo(Path(f"photos/{name}.png"), number)
    assert captioned() == {"photos/a.png", "photos/bad.png", "photos/new.png"}
    assert json.loads(Path("out.json").read_text()) == lines("out.jsonl")
    table[1] = "again.jsonl"
    assert caption(*table, "--overlay", "maps/", "--overwrite") == 0
    assert sorted(lines("again.jsonl"), key=str) == sorted(lines("out.jsonl"), key=str)

    Path("maps/a.png").unlink()
    assert captioned() == {"photos/a.png"}
    assert Path("page.html").read_text().count("data:image/jpeg") == 4
    once = Path("out.jsonl").read_text()
    Path("out.jsonl").write_text(once[:-9])  # As a killed run leaves it.
    captioned()
    assert Path("out.jsonl").read_text() == once
    captioned("--gif", "gifs/")  # A drawing that is wanted now.
    assert len(list(Path("gifs").iterdir())) == 4
    # Captions of other photos are kept, and the model is the same, however it is named.
    photo = str(save_photo(Path("other.png"), 5))
    same = ["caption", photo, "--model", "./tiny-model/", "--resume", "--jsonl", "out.jsonl"]
    assert main(same) == 0
    assert len(lines("out.jsonl")) == 5


@pytest.mark.parametrize("option", ["--jsonl", "--json", "--csv", "--html"])
def test_a_table_of_another_process_is_refused(option: str, folder: Path, capsys: Output) -> None:
    Path("linked.html").symlink_to("new/out.html")
    with file_lock("linked.html"), file_lock(os.devnull), file_lock(os.devnull):
        assert caption(option, "new/out.html", "--overwrite") == 2
        assert "new/out.html is in use by another process" in capsys.readouterr().err
    assert caption(option, "new/out.html") == 0
    assert [path.name for path in Path("new").iterdir()] == ["out.html"]


def test_overwrite_replaces_files_that_exist(folder: Path) -> None:
    Path("out.json").touch()  # An empty file, as `mktemp` makes it, needs none.
    assert caption("--json", "out.json") == 0
    Path("words/a").mkdir(parents=True)
    for name in ("01_old.jpg", "mine.jpg"):
        Path("words/a", name).touch()
    photo = str(save_photo(Path("words/a/02_dog.jpg"), 7))  # No picture of ours is an input.
    options = ["--json", "out.json", "--overlay", "maps/", "--words", "words", "--overwrite"]
    Path("photos/a.png").rename("a.png")
    assert main([*CAPTION, "a.png", photo, *options]) == 0
    assert len(json.loads(Path("out.json").read_text())) == 2
    assert Path(photo).exists()
    names = {path.name for path in Path("words/a").iterdir()}
    assert ("mine.jpg" in names, "01_old.jpg" in names) == (True, False)


def test_a_file_that_fails_loses_no_other(folder: Path, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr("captioner.files.check_files", lambda *_, **__: None)
    for name in ("maps/a.png", "out.csv"):
        Path(name).mkdir(parents=True)
    options = ["--overlay", "maps/", "--gif", "gifs/", "--csv", "out.csv", "--json", "out.json"]
    assert caption(*options, "--html", "out.html") == 2
    errors = capsys.readouterr().err
    assert "cannot write out.csv" in errors
    written, failed = json.loads(Path("out.json").read_text())
    assert failed["files"] == {"gif": "gifs/a.gif"}
    assert "cannot write maps/a.png" in failed["error"]
    assert failed["error"] in errors
    assert written["files"] == {"overlay": "maps/=b.png", "gif": "gifs/=b.gif"}
    assert Path("out.html").is_file()


def test_shards_are_resumed_and_drawn_also_beside_a_broken_one(
    folder: Path, capsys: Output, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("captioner.tables._ROWS_OF_GROUP", 4)
    members = {f"{number}.png": photo_bytes(number) for number in range(3)}
    write_tar(Path("s/0.tar"), members | {"../bad.png": b"none"})
    write_tar(Path("s/1.tar"), members)
    tables = ["--jsonl", "o.jsonl", "--csv", "o.csv", "--parquet", "o.parquet", "--n-best", "2"]
    command = [*CAPTION, "s/{0..2}.tar", *tables, "--overlay", "maps/", "--resume"]
    assert main(command) == 2
    printed = capsys.readouterr()
    assert "s/2.tar does not exist" in printed.err
    assert "s/0.tar/../bad.png is not an image" in printed.err
    before = {record["image"]: record for record in lines("o.jsonl")}
    assert before["s/1.tar/2.png"]["bytes"] == Path("s/1.tar").stat().st_size
    assert Path("maps/1.tar/2.png").is_file()
    os.utime("s/1.tar", (1, 1))
    assert main([*command, "--format", "{path}"]) == 2
    assert {*capsys.readouterr().out.split()} == {f"s/1.tar/{name}" for name in members}
    write_tar(Path("s/2.tar"), {"0.png": members["0.png"]})
    assert main(command) == 2  # The record of a tar that failed goes.
    changed = {record["image"] for record in lines("o.jsonl")} ^ before.keys()
    assert changed == {"s/{0..2}.tar", "s/2.tar/0.png"}
    # Parquet has the rows of CSV, in row groups, and all columns.
    expected = list(csv.DictReader(Path("o.csv").read_text().splitlines()))
    for ours, theirs in zip(parquet.read_table("o.parquet").to_pylist(), expected, strict=True):
        ours["words"] = " ".join(ours["words"] or [])
        ours["keywords"] = ", ".join(ours["keywords"] or [])
        shown = {name: f"{value}" for name, value in ours.items() if value not in (None, "")}
        assert shown == {name: value for name, value in theirs.items() if value}
    assert parquet.ParquetFile("o.parquet").num_row_groups > 1
    content = Path("o.parquet").read_bytes()
    missing = ["--model", "nowhere", "--parquet", "o.parquet", "--overwrite"]
    assert main(["caption", "photos/a.png", *missing]) == 2
    assert Path("o.parquet").read_bytes() == content


def test_no_text_is_a_formula_and_every_other_value_stays() -> None:
    names = ['=HYPERLINK("http://a")', "@SUM(1)", "+1", "-2+3", "'=x", "a=b", "it's", "a,b\nc"]
    table = csv_text([{"image": name, "score": -1.5} for name in names])
    expected = [f"'{name}" for name in names[:5]] + names[5:]
    rows = [[name, "-1.5"] for name in expected]
    assert [*csv.reader(io.StringIO(table))] == [["image", "score"], *rows]
