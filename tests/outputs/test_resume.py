"""Resuming from JSON lines: edits, origins, working folders, damage, photos that change, kills."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyarrow import parquet
from samples import CAPTION, Output, Patch, make_captioner, save_photo, words_of_person, write_tar

from captioner.backends.torch_captions import TorchCaptions
from captioner.caption.caption import sentence
from captioner.caption.folder import save_model
from captioner.cli.main import main
from captioner.files import atomic_path
from captioner.outputs.known_photos import file_state
from captioner.outputs.options import OutputOptions
from captioner.outputs.outputs import opened_outputs
from captioner.outputs.record import record_of

RESUME = ["--jsonl", "o.jsonl", "--resume"]
MINE = "My brother's two dogs."


@pytest.fixture
def folder(tiny_model: Path, monkeypatch: Patch) -> Path:
    """The current folder, with the model and two photos in the folder `photos`."""
    monkeypatch.chdir(tiny_model.parent)
    for number, name in enumerate(("a.png", "b.png")):
        save_photo(Path("photos") / name, number)
    return tiny_model.parent


def caption(*options: str) -> int:
    return main([*CAPTION, "photos", *RESUME, *options])


def records(path: str = "o.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write(*changed: dict[str, object]) -> None:
    Path("o.jsonl").write_text("".join(json.dumps(record) + "\n" for record in changed))


def test_a_caption_that_a_person_changed_stays_in_every_output(
    folder: Path, capsys: Output
) -> None:
    assert caption("--xmp") == 0
    first, second = records()
    write(first | {"caption": MINE}, second)
    outputs = ["--xmp", "--text", "--overlay", "maps/", "--html", "page.html", "--json", "o.json"]
    outputs += ["--csv", "o.csv", "--parquet", "o.parquet"]
    capsys.readouterr()
    assert caption(*outputs) == 0
    printed = capsys.readouterr()
    assert f"photos/a.png: {MINE}\n" in printed.out
    assert printed.err.endswith("captioner: 1 captioned, 1 kept a person's words\n")
    for found in (records()[0], json.loads(Path("o.json").read_text())[0]):
        assert (found["caption"], found["by"], found["words"]) == (MINE, "person", first["words"])
    assert parquet.read_table("o.parquet").to_pylist()[0]["caption"] == MINE
    assert MINE in Path("o.csv").read_text()
    assert "a.png: My brother&#x27;s two dogs." in Path("page.html").read_text()
    assert Path("photos/a.txt").read_text() == f"{MINE}\n"
    assert words_of_person(Path("photos/a.png")) == MINE
    assert not words_of_person(Path("photos/b.png"))
    assert Path("maps/a.png").is_file()

    save_photo(Path("photos/a.png"), 7)  # Nor does a change of the photo take it away.
    capsys.readouterr()
    assert caption(*outputs[:4], "--edited") == 0
    assert "2 of 2 photos are captioned already" in capsys.readouterr().err
    assert caption(*outputs[:4]) == 0
    assert "2 of 2 photos are captioned already" in capsys.readouterr().err
    assert {record["image"]: record["caption"] for record in records()}["photos/a.png"] == MINE


def test_a_caption_that_a_person_took_out_is_kept_and_counts_as_finished(
    folder: Path, capsys: Output
) -> None:
    assert caption() == 0
    first, second = records()
    write(first | {"caption": ""}, second)
    assert caption("--xmp") == 0
    capsys.readouterr()
    assert caption("--xmp") == 0
    # Nor does a last line say that nothing was captioned.
    assert capsys.readouterr().err == "captioner: 2 of 2 photos are captioned already\n"
    assert [*Path("photos").glob("*.xmp")] == [Path("photos/b.xmp")]


@pytest.mark.parametrize("options", [["--cautious"], ["--language", "de"], ["--language", "fr"]])
def test_captions_by_models_are_not_by_a_person(folder: Path, options: list[str]) -> None:
    assert main(["caption", "--demo", "--n-best", "5", "--json", "o.json", *options]) == 0
    (record,) = json.loads(Path("o.json").read_text())
    assert not record_of(record).is_by_person
    assert record_of(record | {"caption": f"{record['caption']}."}).is_by_person
    record["alternatives"][-1]["caption"] += " too"
    assert not record_of(record).is_by_person  # Its caption is the model's.


@given(some.lists(some.sampled_from(["a", "'s", "n't", "man", "\u00e9t\u00e9", "l'eau", "-"])))
def test_no_sentence_of_words_is_by_a_person(words: list[str]) -> None:
    for caption_ in (sentence(words), " ".join(words)):
        record = {"image": "a.png", "caption": caption_, "words": words}
        assert not record_of(record).is_by_person


def test_captions_of_one_origin_alone_are_in_a_table(folder: Path, capsys: Output) -> None:
    assert caption("--beam", "2") == 0
    before = Path("o.jsonl").read_bytes()
    digest = str(records()[0]["digest"])
    shutil.copytree("tiny-model", "copied")
    save_model(make_captioner(seed=1), Path("other"))
    other = ["--model", "other"]
    assert caption("--model", "copied") == caption("--beam", "2") == 0  # Given last, it counts.
    capsys.readouterr()
    for options, was in ((other, digest[:40]), (["--beam", "3"], "beam 2 and of")):
        assert caption(*options) == 2
        (sentence,) = capsys.readouterr().err.splitlines()
        assert was in sentence
        assert sentence.endswith("give another file, or --resume-any")
        assert Path("o.jsonl").read_bytes() == before
        assert caption(*options, "--resume-any", "--quiet") == 0
    german = ["--language", "de", "--jsonl", "de.jsonl"]
    assert caption(*german) == caption(*german) == 0
    assert "2 of 2 photos are captioned already" in capsys.readouterr().err
    assert caption(*german, "--language", "fr") == 2
    write(*({name: old[name] for name in old if name != "digest"} for old in records()))
    assert caption() == 0
    assert caption(*other) == 2


def test_a_table_resumes_from_any_working_folder(
    folder: Path, capsys: Output, monkeypatch: Patch
) -> None:
    Path("out/below").mkdir(parents=True)
    model, drawn = f"{folder.resolve()}/tiny-model", f"{folder.resolve()}/maps"
    first = ["caption", "--model", model, "--resume", "--overlay", drawn]
    assert main([*first, "photos", "--jsonl", "out/o.jsonl"]) == 0
    for place, photos, table in (
        ("out", "../photos", "o.jsonl"),
        ("out/below", "../../photos", "../o.jsonl"),
        (".", "photos", "out/o.jsonl"),
    ):
        monkeypatch.chdir(folder / place)
        capsys.readouterr()
        assert main([*first, photos, "--jsonl", table]) == 0
        errors = capsys.readouterr().err
        assert "2 of 2 photos are captioned already" in errors
        assert "gone" not in errors
        assert len(records(table)) == 2
    monkeypatch.chdir(folder / "out")  # A photo that has changed as well is found from the table.
    Path("o.jsonl").rename("../o.jsonl")
    save_photo(Path("../photos/a.png"), 9)
    assert main([*first[:-2], "../photos", "--jsonl", "../o.jsonl"]) == 0
    assert len(records("../o.jsonl")) == 2


def test_a_line_without_a_record_is_named_and_left_alone(folder: Path, capsys: Output) -> None:
    assert caption() == 0
    first, second = Path("o.jsonl").read_bytes().splitlines(keepends=True)
    torn = first[:40] + second + b'{"image": "foreign", "caption": "mine"}\n[1]\n'
    Path("o.jsonl").write_bytes(first + torn + second[:50])  # As `cat` makes it of two.
    capsys.readouterr()
    assert caption() == 0
    printed = capsys.readouterr()
    for number in (2, 3, 4):
        what = "no record of `captioner caption`: it is left alone"
        assert f"captioner: line {number} of o.jsonl is {what}\n" in printed.err
    assert printed.out.startswith("photos/b.png: ")
    assert Path("o.jsonl").read_bytes().startswith(first + torn + second[:60])
    whole = b"\xef\xbb\xbf" + first + second.rstrip()  # By an editor.
    Path("o.jsonl").write_bytes(whole)
    assert caption() == 0
    assert "2 of 2 photos are captioned already" in capsys.readouterr().err
    for content in (b"mine\n", b"mine", b'[\n {"image": "a.png"}\n]\n'):
        Path("o.jsonl").write_bytes(content)
        assert caption() == 2
        error = capsys.readouterr().err
        assert error.endswith(
            "o.jsonl holds no results of `captioner caption`; give another file\n"
        )
        assert Path("o.jsonl").read_bytes() == content


WRONG = {
    "words": [None, "x", {"a": 1}, [1]],
    "word_confidence": [5, ["a"], [[]]],
    "caption": [None, ["a"]],
    "alternatives": [5, [1], [{"words": 5}]],
    "files": [5, {"xmp": 1}],
    "bytes": ["5"],
    "image": ["", 5],
    "search": [[1]],
}


def test_a_record_of_other_types_is_named_and_captioned_again(folder: Path, capsys: Output) -> None:
    assert caption() == 0
    first, second = records()
    wrong = [{**first, field: value} for field, values in WRONG.items() for value in values]
    write(*wrong, second)
    assert caption("--csv", "o.csv", "--parquet", "o.parquet") == 0
    printed = capsys.readouterr().err
    for number in range(1, len(wrong) + 1):
        assert f"line {number} of o.jsonl is no record of `captioner caption`" in printed
    named = [record["image"] for record in records()[len(wrong) :]]
    assert named == ["photos/b.png", "photos/a.png"]


def test_photos_with_a_text_have_records_if_there_is_a_table(folder: Path) -> None:
    assert caption("--text") == 0
    Path("o.jsonl").unlink()  # As after a kill before its first line.
    assert caption("--text", "--xmp") == 0
    assert len(records()) == len([*Path("photos").glob("*.xmp")]) == 2


@pytest.fixture
def meanwhile(monkeypatch: Patch) -> Callable[[Callable[[], object]], None]:
    """Lets something happen when photos are encoded."""
    encode = TorchCaptions.encode

    def happens(change: Callable[[], object]) -> None:
        def encoded(self: TorchCaptions, pixels: object) -> object:
            change()
            return encode(self, pixels)

        monkeypatch.setattr(TorchCaptions, "encode", encoded)

    return happens


@pytest.mark.parametrize("change", ["photo", "removed", "shard"])
def test_a_photo_changed_while_it_is_captioned_has_no_caption(
    change: str, folder: Path, capsys: Output, meanwhile: Callable[..., None]
) -> None:
    path = Path("photos/a.png")
    if change == "shard":
        path = write_tar(Path("photos/a.tar"), {"0.png": path.read_bytes()})
    changed = path.read_bytes() + b"\0"
    append = lambda: path.read_bytes() == changed or path.write_bytes(changed)  # noqa: E731
    meanwhile(path.unlink if change == "removed" else append)
    command = [*CAPTION, str(path), "photos/b.png", *RESUME, "--overlay", "maps/"]
    assert main([*command, "--engine", "torch"]) == 2
    assert "changed while it was captioned; caption it again" in capsys.readouterr().err
    assert [each["image"] for each in records() if "caption" in each] == ["photos/b.png"]
    assert [file.name for file in Path("maps").rglob("*.png")] == ["b.png"]
    if change == "photo":
        assert main(command) == 0
        assert [*map(len, (records(), capsys.readouterr().out.splitlines()))] == [2, 1]
        assert not any("error" in record for record in records())


def test_words_of_a_person_are_not_written_for_a_photo_that_changes_meanwhile(
    folder: Path, meanwhile: Callable[..., None]
) -> None:
    assert caption() == 0
    first, second = records()
    write(first | {"caption": MINE}, second)
    meanwhile(lambda: save_photo(Path("photos/a.png"), 9))
    assert caption("--overlay", "maps/", "--xmp", "--engine", "torch") == 2
    assert not Path("photos/a.xmp").exists()
    found = {record["image"]: record for record in records()}["photos/a.png"]
    assert (found["caption"], found["photo_digest"]) == (MINE, first["photo_digest"])


def test_a_run_killed_before_its_first_record_resumes(folder: Path) -> None:
    photos = {"photos/a.png": "photos/a.png"}
    options = OutputOptions(jsonl="o.jsonl", overlay="maps/", resume=True)
    with opened_outputs(options, photos):
        pass
    save_photo(Path("maps/a.png"))
    with opened_outputs(options, photos) as outputs:
        assert outputs.remaining == photos
    assert caption("--overlay", "maps/") == 0


def test_a_killed_run_leaves_no_temporaries_to_the_next(folder: Path) -> None:
    tables = ["o.jsonl", "o.json", "o.csv", "o.parquet", "o.html"]
    for table in tables:
        with atomic_path(table) as temporary:
            temporary.touch()
        Path(table).rename(temporary)
    other = folder / ".captioner-0123.txt"  # Of another file.
    other.touch()
    command = [f"--{Path(table).suffix[1:]}={table}" for table in tables]
    assert main([*CAPTION, "photos/a.png", *command, "--resume"]) == 0
    assert [*folder.glob(".captioner-*")] == [other]


@pytest.mark.parametrize("seconds", [1.73e12, 2.0**62, -1e15])
def test_a_photo_is_of_any_time(seconds: float) -> None:
    assert file_state(None) is None
    assert file_state(SimpleNamespace(st_size=3, st_mtime=seconds)) == (3, f"@{seconds}")
    early = file_state(SimpleNamespace(st_size=3, st_mtime=-1.5))
    assert early == (3, "1969-12-31T23:59:58.500000+00:00")


def test_the_last_line_counts_and_parquet_has_types(folder: Path, capsys: Output) -> None:
    Path("photos/c.png").write_bytes(b"none")
    assert main([*CAPTION, "photos", "none.png", "--parquet", "o.parquet"]) == 2
    assert capsys.readouterr().err.endswith("captioner: 2 captioned, 2 unreadable\n")
    schema = parquet.read_table("o.parquet").schema
    types = [str(schema.field(name).type) for name in ("words", "word_confidence")]
    assert types == ["list<element: string>", "list<element: double>"]
    assert main([*CAPTION, "photos/a.png"]) == 0
    assert capsys.readouterr().err == ""


def test_on_a_terminal_a_table_has_the_bar_alone(
    folder: Path, capsys: Output, monkeypatch: Patch
) -> None:
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    tables = ["--batch-size", "1", "--csv", "o.csv", "--overwrite"]
    assert main([*CAPTION, "photos", *tables]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "| 2/2 [" in printed.err
    assert main([*CAPTION, "photos", *tables, "--format", "{path}"]) == 0
    assert capsys.readouterr().out == "photos/a.png\nphotos/b.png\n"
