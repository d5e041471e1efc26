"""`captioner caption`: photos and names on standard input, lines, formats, tables, languages."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet
from samples import CAPTION, Give, Output, make_captioner, save_photo

from captioner.caption.folder import save_model
from captioner.cli.main import main
from captioner.text.languages import FUNCTION_WORDS

BOTH = [*CAPTION, "a.png", "b.png"]


def records() -> dict[str, dict[str, object]]:
    """The JSON records of both photos, by path."""
    assert main([*BOTH, "--quiet", "--json", "both.json"]) == 0
    return {record["image"]: record for record in json.loads(Path("both.json").read_text())}


def test_standard_input_is_a_photo_or_names(folder: Path, give: Give, capsys: Output) -> None:
    content = Path("a.png").read_bytes()
    command = [*CAPTION, "b.png", "-", "a.png", "--json", "o.json", "--overwrite"]
    give(content)
    assert main([*command, "--overlay", "maps/", "--html", "page.html"]) == 0
    first, second, third = (line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert (first[0], second[0], third[0], second[1]) == ("b.png", "-", "a.png", third[1])
    assert [each["image"] for each in json.loads(Path("o.json").read_text())] == [
        "b.png",
        "-",
        "a.png",
    ]
    names = {path.name for path in Path("maps").iterdir()}
    assert names == {"b.png", "standard_input.png", "a.png"}
    assert 'data-image=""' in Path("page.html").read_text(encoding="utf-8")
    give(content[:60])
    assert main(command) == 2
    assert capsys.readouterr().err.startswith("captioner: cannot read standard input (")
    give(f"file://{folder.as_posix()}/%61.png\r\n\nb.png\n".encode())
    Path("maps/a.mov").touch()
    assert main([*CAPTION, "-", "maps", "--format", "{path}"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{folder}/a.png\nb.png\nmaps/a.png\n")
    assert captured.err == "captioner: maps: left out: 1 video\ncaptioner: 5 captioned\n"
    give(b"\n \r\n")
    assert main([*CAPTION, "-"]) == 2
    assert "standard input is empty: it should be a photo or a list" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_list_of_wide_characters_needs_its_mark(
    folder: Path, give: Give, capsys: Output, encoding: str
) -> None:
    give("a.png\nb.png\n".encode(encoding))
    assert main([*CAPTION, "-"]) == 2
    message = "the list on standard input is not UTF-8 text (it has NUL bytes): save it as UTF-8"
    assert capsys.readouterr().err == f"captioner: {message}\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_names_and_lines_end_in_nul(folder: Path) -> None:
    names = [b"new\nline.png", b"caf\xe9.png"]
    for name in names:
        Path(os.fsdecode(name)).symlink_to("a.png")
    command = [sys.executable, "-m", "captioner", *CAPTION, "-0", "-", "--json", "o.json"]
    run = subprocess.run(command, input=b"".join(b"%s\0" % n for n in names), capture_output=True)
    assert (run.returncode, run.stderr) == (0, b"captioner: 2 captioned\n")
    records = json.loads(Path("o.json").read_text())
    assert [record["image"] for record in records] == [os.fsdecode(name) for name in names]
    captions = [record["caption"].encode() for record in records]
    assert run.stdout == b"".join(b"%s: %s\0" % pair for pair in zip(names, captions, strict=True))


def test_options_may_stand_between_photos(folder: Path, capsys: Output) -> None:
    save_photo(folder / "c.png")
    command = [*CAPTION, "a.png", "--device", "cpu", "b.png", "--beam", "2"]
    assert main([*command, "--format", "{path}", "c.png", "--", "--b.png"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "a.png\nb.png\nc.png\n"
    assert "--b.png does not exist" in printed.err


def test_captions_of_several_photos_have_paths(folder: Path, give: Give, capsys: Output) -> None:
    found = {path: record["caption"] for path, record in records().items()}
    assert main([*CAPTION, "a.png"]) == 0
    assert capsys.readouterr().out == f"{found['a.png']}\n"
    assert main(BOTH) == 0
    assert capsys.readouterr().out == f"a.png: {found['a.png']}\nb.png: {found['b.png']}\n"
    # Whether a line has a path does not depend on which photos can be read.
    Path("bad.png").write_bytes(b"none")
    assert main([*CAPTION, "a.png", "bad.png"]) == 2
    assert capsys.readouterr().out == f"a.png: {found['a.png']}\n"
    assert main([*CAPTION, "a.png", "bad.png", "--quiet"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, "bad.png is not an image" in printed.err) == ("", True)
    for path in (".", "a.*", "-"):  # The only photo of a folder or list has its path as well.
        Path("b.png").unlink(missing_ok=True)
        give(b"a.png\n")
        assert main([*CAPTION, path, "--model", "tiny-model"]) in (0, 2)
        assert capsys.readouterr().out == f"a.png: {found['a.png']}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_a_name_that_is_no_utf_8_is_in_all_tables(folder: Path) -> None:
    os.link("a.png", b"caf\xe9.png")
    tables = ["--csv", "o.csv", "--parquet", "o.parquet", "--json", "o.json"]
    assert main([*CAPTION, os.fsdecode(b"caf\xe9.png"), *tables]) == 0
    assert parquet.read_table("o.parquet")["image"].to_pylist() == [r"caf\udce9.png"]
    assert r"caf\udce9.png,1," in Path("o.csv").read_text()


def test_a_file_name_stays_on_its_line(folder: Path, capsys: Output) -> None:
    photo = save_photo(Path("a\nb\x1b[2J\u202e.png"))
    Path("c\nd.png").write_bytes(b"none")
    assert main([*CAPTION, str(photo), "c\nd.png"]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("a\\nb\\x1b[2J\\u202e.png: ")
    assert printed.err.startswith("captioner: c\\nd.png is not an image")
    assert (len(printed.out.splitlines()), len(printed.err.splitlines())) == (1, 2)


def test_a_format_takes_fields_and_leaves_missing_ones_empty(folder: Path, capsys: Output) -> None:
    found = records()
    form = r"{path}\t{rank}\t{caption:.3}\t{score:.2f}\t{confidence:.2f}\t{doubt}{{}}\n"
    assert main([*BOTH, "--format", form]) == 0
    assert capsys.readouterr().out == "".join(
        f"{path}\t1\t{str(record['caption'])[:3]}\t{record['score']:.2f}\t\t{{}}\n\n"
        for path, record in found.items()
    )
    save_photo(Path('a "b" & c.png'))
    form = ["--format", "{keywords}: {img}", "--keywords", "all"]
    assert main([*CAPTION, 'a "b" & c.png', *form, "--csv", "o.csv"]) == 0
    (row,) = csv.DictReader(Path("o.csv").read_text().splitlines())
    image = f'<img src="a%20%22b%22%20%26%20c.png" alt="{row["caption"]}">'
    assert capsys.readouterr().out == f"{row['keywords']}: {image}\n"
    content = [word for word in row["caption"].split() if word not in FUNCTION_WORDS]
    assert row["keywords"] == ", ".join(dict.fromkeys(content))


def test_a_table_on_standard_output_is_alone_there(folder: Path, capsys: Output) -> None:
    expected = list(records().values())
    assert main([*BOTH, "--json", "-", "--csv", "o.csv"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    assert main([*BOTH, "--csv", "-"]) == 0
    printed = capsys.readouterr().out
    assert printed == Path("o.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [row["caption"] for row in rows] == [record["caption"] for record in expected]
    Path("bad.png").write_bytes(b"none")
    assert main([*BOTH, "bad.png", "missing.png", "--jsonl", "-"]) == 2
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["image"] for line in lines] == ["a.png", "b.png", "bad.png", "missing.png"]
    assert ["error" in line for line in lines] == [False, False, True, True]


def test_n_best_shows_what_it_is_ranked_by(folder: Path, capsys: Output) -> None:
    command = [*CAPTION, "a.png", "--n-best", "4", "--length-normalisation", "2"]
    assert main([*command, "--json", "out.json"]) == 0
    said = re.findall(r"\(score (\S+), log-probability (\S+)\)$", capsys.readouterr().out, re.M)
    (record,) = json.loads(Path("out.json").read_text())
    found = [record, *record["alternatives"]]
    assert [(f"{each['score']:.2f}", f"{each['log_probability']:.2f}") for each in found] == said
    for each in found:
        lengths = ((5 + len(each["words"]) + 1) / 6) ** 2
        assert each["score"] == pytest.approx(each["log_probability"] / lengths)


def test_captions_are_translated_in_every_output(folder: Path, capsys: Output) -> None:
    save_model(make_captioner(words=["a", "dog", "man", "red", "water"]), Path("model"))
    command = ["caption", "a.png", "--model", "model", "--n-best", "2", "--json"]
    outputs = ("--overlay", "a.jpg", "--html", "page.html", "--xmp", "--text")
    assert main([*command, "found.json", "--language", "FR-ca", *outputs]) == 0
    lines = capsys.readouterr().out
    assert main([*command, "en.json", "--language", "en-gb"]) == 0
    (english,), (found,) = (
        json.loads(Path(f"{name}.json").read_text()) for name in ("en", "found")
    )
    captions = zip(
        [found, *found["alternatives"]], [english, *english["alternatives"]], strict=True
    )
    for version, original in captions:
        assert (version["language"], version["score"]) == ("fr-CA", original["score"])
        assert version["original"]["words"] == original["words"]
        assert version["caption"] in lines
    assert Path("a.txt").read_text(encoding="utf-8") == f"{found['caption']}\n"
    sidecar = Path("a.xmp").read_text(encoding="utf-8")
    assert f'xml:lang="x-default">{found["caption"]}<' in sidecar
    assert sidecar.count("fr-CA") == 1  # In captioner's own field.
    assert Path("a.jpg").is_file()
    page = Path("page.html").read_text(encoding="utf-8")
    assert [part for part in ('lang="fr-CA"', *found["words"]) if part not in page] == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send SIGTERM to a handler")
@pytest.mark.parametrize("reader", ["stays", "leaves"])
def test_termination_keeps_captions_and_a_reader_may_leave(reader: str, folder: Path) -> None:
    paths = [f"{number}.png" for number in range(800)]
    for path in paths:
        os.link("a.png", path)
    command = [sys.executable, "-m", "captioner", *CAPTION, *paths, "--batch-size", "1"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, "--json", "out.json"], **options) as process:
        for _ in range(2):
            process.stdout.readline()
        if reader == "leaves":
            process.stdout.close()
            assert b"Traceback" not in process.stderr.read()
            return
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.decode().endswith("captioner: interrupted\n")
    assert 1 <= len(json.loads(Path("out.json").read_text())) < 800


def test_photos_known_to_be_unreadable_are_no_failure(folder: Path, capsys: Output) -> None:
    Path("broken.png").write_bytes(b"no photo")
    Path("known.txt").write_text("./broken.png\n\ngone.png\n")
    command = [*BOTH, "broken.png", "--jsonl", "t.jsonl"]
    assert main([*command, "--known", "known.txt"]) == 0
    errors = capsys.readouterr().err
    assert "broken.png is not an image" in errors
    assert "2 captioned" in errors
    assert "1 unreadable as known" in errors
    assert main([*command, "--resume"]) == 2
    assert main([*BOTH, "--known", "nowhere.txt"]) == 2
    assert "nowhere.txt does not exist" in capsys.readouterr().err
