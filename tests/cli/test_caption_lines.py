"""What `captioner caption` prints: lines of photos, formats, tables on standard output."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import Output, Refused

from captioner.cli.main import main

CAPTION = ["caption", "--model", "tiny-model"]
BOTH = [*CAPTION, "a.png", "b.png"]


def records() -> dict[str, dict[str, object]]:
    """The JSON records of both photos, by path."""
    assert main([*BOTH, "--quiet", "--json", "o.json"]) == 0
    return {record["image"]: record for record in json.loads(Path("o.json").read_text())}


def test_a_photo_has_its_sentence_alone_and_several_their_paths(
    folder: Path, capsys: Output
) -> None:
    found = {path: record["caption"] for path, record in records().items()}
    assert main([*CAPTION, "a.png"]) == 0
    assert capsys.readouterr().out == f"{found['a.png']}\n"
    assert main(BOTH) == 0
    assert capsys.readouterr().out == f"a.png: {found['a.png']}\nb.png: {found['b.png']}\n"
    # Whether a line has a path does not depend on which photos can be read.
    Path("bad.png").write_bytes(b"none")
    for other in ("bad.png", "missing.png"):
        assert main([*CAPTION, "a.png", other]) == 2
        assert capsys.readouterr().out == f"a.png: {found['a.png']}\n"
    assert main([*CAPTION, "a.png", "bad.png", "--quiet"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "bad.png is not an image" in printed.err


@pytest.mark.parametrize("path", ["one", "one/*.png", "-"])
def test_the_only_photo_of_a_folder_or_list_has_its_path(
    path: str, folder: Path, give: Callable[[bytes], None], capsys: Output
) -> None:
    Path("one").mkdir()
    Path("a.png").rename("one/a.png")
    give(b"one/a.png\n")
    assert main([*CAPTION, path]) == 0
    assert capsys.readouterr().out.startswith("one/a.png: ")


def test_a_format_takes_fields_and_leaves_those_without_a_value_empty(
    folder: Path, capsys: Output
) -> None:
    found = records()
    form = r"{path}\t{rank}\t{caption:.3}\t{score:.2f}\t{confidence:.2f}\t{doubt}{{}}\n"
    assert main([*BOTH, "--format", form]) == 0
    assert capsys.readouterr().out == "".join(
        f"{path}\t1\t{str(record['caption'])[:3]}\t{record['score']:.2f}\t\t{{}}\n\n"
        for path, record in found.items()
    )


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("{image}", "--format {image} has an unknown field {image}; the fields are path, caption,"),
        ("{}", "unknown field {}"),
        ("{caption.__class__}", "unknown field {caption.__class__}"),
        ("{caption:{rank}}", "a field takes a width or precision only"),
        ("{caption!r}", "a field takes a width or precision only"),
        ("{caption:.2f}", "--format {caption:.2f} is not understood"),
        ("{caption", "--format {caption is not understood"),
    ],
)
def test_a_format_that_is_not_understood_is_refused_before_work_starts(
    form: str, said: str, folder: Path, refused: Refused
) -> None:
    assert said in refused(["caption", "a.png", "--model", "no-such-model", "--format", form])


def test_a_table_on_standard_output_is_alone_there(folder: Path, capsys: Output) -> None:
    expected = list(records().values())
    assert main([*BOTH, "--json", "-", "--csv", "o.csv"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    assert main([*BOTH, "--csv", "-"]) == 0
    printed = capsys.readouterr().out
    assert printed == Path("o.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [row["caption"] for row in rows] == [record["caption"] for record in expected]
    assert not Path("-").exists()


def test_tables_on_standard_output_have_errors(folder: Path, capsys: Output) -> None:
    Path("bad.png").write_bytes(b"none")
    for photo in ("bad.png", "missing.png"):
        assert main([*CAPTION, photo, "--json", "-"]) == 2
        printed = capsys.readouterr()
        (record,) = json.loads(printed.out)
        assert record["image"] == photo
        assert printed.err == f"captioner: {record['error']}\n"
    assert main([*BOTH, "bad.png", "--jsonl", "-"]) == 2
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["image"] for line in lines] == ["a.png", "b.png", "bad.png"]
    assert ["error" in line for line in lines] == [False, False, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--json", "-", "--csv", "-"], "--json and --csv cannot both be standard output"),
        (["--json", "-", "--format", "{path}"], "--format has no meaning"),
    ],
)
def test_two_things_cannot_share_standard_output(
    options: list[str], said: str, folder: Path, refused: Refused
) -> None:
    assert said in refused([*CAPTION, "a.png", *options])
