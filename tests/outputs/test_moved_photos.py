"""Words follow their photo by its digest: renumbered, swapped, replaced and edited photos."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from samples import CAPTION, Output, Refused, save_photo

from captioner.cli.main import main
from captioner.library import Library
from captioner.vision.digest import photo_digest

RESUME = [*CAPTION, ".", "--jsonl", "o.jsonl", "--resume", "--xmp"]


def records() -> dict[str, dict[str, Any]]:
    found = map(json.loads, Path("o.jsonl").read_text().splitlines())
    return {record["image"]: record for record in found}


def correct(**captions: str) -> None:
    """What a person writes into the table."""
    changed = records()
    for name, caption in captions.items():
        changed[f"{name}.png"]["caption"] = caption
    Path("o.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in changed.values()))


def rename(**names: str) -> None:
    """Rename photos, also to each other's names."""
    for old in names:
        Path(f"{old}.png").rename(f"{old}.tmp")
    for old, new in names.items():
        Path(f"{old}.tmp").rename(f"{new}.png")


def described(photo: str) -> list[str]:
    return [each.text for each in Library().said(photo) if each.by in ("table", "captioner")]


def test_captions_by_people_follow_swapped_and_renumbered_photos(folder: Path) -> None:
    save_photo(Path("c.png"), 3)
    assert main(RESUME) == 0
    correct(a="Anna", b="Ben", c="Cleo")
    for names, expected in (
        ({"a": "b", "b": "a"}, {"b": "Anna", "a": "Ben", "c": "Cleo"}),
        ({"b": "c", "c": "d", "a": "b"}, {"c": "Anna", "b": "Ben", "d": "Cleo"}),
    ):
        rename(**names)
        for _ in range(2):
            assert main(RESUME) == 0
            assert {each[0]: record["caption"] for each, record in records().items()} == expected
            for name, caption in expected.items():
                assert described(f"{name}.png") == [caption]
    assert not Path("a.xmp").exists()


def test_a_sidecar_with_a_rating_follows_its_photo(folder: Path) -> None:
    assert main(RESUME) == 0
    rating = '<rdf:Description xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="4" '
    for name in "ab":
        sidecar = Path(f"{name}.xmp").read_text()
        number = str(ord(name))
        Path(f"{name}.xmp").write_text(
            sidecar.replace("<rdf:Description ", rating.replace("4", number))
        )
    captions = {name: record["caption"] for name, record in records().items()}
    rename(a="b", b="a")
    assert main(RESUME) == 0
    for name, other in ("ab", "ba"):
        assert f'"{ord(other)}"' in Path(f"{name}.xmp").read_text()
        assert described(f"{name}.png") == [captions[f"{other}.png"]]


def test_write_lets_a_rating_follow_a_renamed_photo_and_names_traded_ones(
    folder: Path, capsys: Output
) -> None:
    assert main([*CAPTION, ".", "--jsonl", "o.jsonl", "--xmp"]) == 0
    caption = records()["a.png"]["caption"]
    rating = '<rdf:Description xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="4" '
    sidecar = Path("a.xmp").read_text().replace("<rdf:Description ", rating)
    Path("a.xmp").write_text(sidecar)
    rename(a="z")
    for _ in range(2):
        assert main(["write", "o.jsonl", "--xmp"]) == 0
        assert 'Rating="4"' in Path("z.xmp").read_text()
        assert described("z.png") == [caption]
        assert not Path("a.xmp").exists()
    capsys.readouterr()
    rename(z="b", b="a")
    assert main(["write", "o.jsonl", "--xmp"]) == 0
    assert "2 photos took the name of another, a.png the first" in capsys.readouterr().err
    assert described("b.png") == [caption]


def test_a_replaced_photo_gets_nobodys_caption_unless_it_is_the_same_edited(
    folder: Path, capsys: Output
) -> None:
    assert main(RESUME) == 0
    correct(a="Anna")
    assert main(RESUME) == 0
    save_photo(Path("a.png"), 9)
    before = {path: path.read_bytes() for path in Path().glob("*.[xj][ms][pol]*")}
    for command in (RESUME, ["write", "o.jsonl", "--xmp"]):
        capsys.readouterr()
        assert main(command) == 2
        errors = capsys.readouterr().err
        assert "a.png" in errors
        assert "'Anna'" in errors
        assert "1 not written" in errors
        assert {path: path.read_bytes() for path in before} == before
    assert main(["write", "o.jsonl", "--xmp", "--edited"]) == 0
    assert main([*RESUME, "--edited"]) == 0
    assert records()["a.png"]["photo_digest"] == photo_digest("a.png")
    assert main(RESUME) == 0
    assert described("a.png") == ["Anna"]


def test_a_table_with_digests_finds_its_photos_below_the_folder(
    folder: Path, capsys: Output
) -> None:
    digests = {name: photo_digest(f"{name}.png") for name in "ab"}
    rename(a="b", b="a")
    for name in "ab":
        Path(f"album {name}").mkdir()
        Path(f"{name}.png").rename(f"album {name}/1.png")
    rows = ["image,caption,language,photo_digest"]
    rows += [f"1.png,Anna,,{digests['a']}", f"1.png,Ein Hund,de,{digests['b']}"]
    Path("edits.csv").write_text("\n".join([*rows, "2.png,Gone,,0123", ""]))
    assert main(["write", "edits.csv", "--xmp"]) == 2
    assert "1 missing image: see --images (2.png" in capsys.readouterr().err
    assert described("album b/1.png") == ["Anna"]
    assert described("album a/1.png") == ["Ein Hund"]
    assert ">de<" in Path("album a/1.xmp").read_text()


def test_every_table_has_digests_and_write_goes_by_them(folder: Path) -> None:
    tables = ["--csv", "o.csv", "--parquet", "o.parquet", "--json", "o.json"]
    assert main([*CAPTION, "a.png", "b.png", *tables]) == 0
    digests = [photo_digest(name) for name in ("a.png", "b.png")]
    rows = [
        [*csv.DictReader(Path("o.csv").read_text().splitlines())],
        parquet.read_table("o.parquet").to_pylist(),
        json.loads(Path("o.json").read_text()),
    ]
    assert [[row["photo_digest"] for row in each] for each in rows] == [digests] * 3
    captions = [row["caption"] for row in rows[0]]
    rename(a="b", b="a")
    for table in tables[1::2]:
        assert main(["write", table, "--xmp"]) == 0
        assert [described(name) for name in ("b.png", "a.png")] == [[each] for each in captions]


def test_a_resumed_table_is_not_written_if_there_is_nothing_to_do(folder: Path) -> None:
    assert main(RESUME) == 0
    before = Path("o.jsonl").stat()
    assert main(RESUME) == 0
    after = Path("o.jsonl").stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


@pytest.mark.parametrize("photos", [["empty"], ["empty", "a.png"], ["nowhere/*.png", "a.png"]])
def test_nothing_is_pruned_for_a_folder_that_may_not_be_mounted(
    photos: list[str], folder: Path, refused: Refused
) -> None:
    assert main(RESUME) == 0
    Path("empty").mkdir()
    Path("b.png").unlink()
    command = [*CAPTION, *photos, "--jsonl", "o.jsonl", "--xmp", "--prune"]
    assert "--prune would drop records" in refused(command)
    assert len(records()) == 2


def test_a_text_of_the_model_gives_way_to_that_of_another_photo(folder: Path) -> None:
    command = [*CAPTION, "a.png", "--jsonl", "o.jsonl", "--resume", "--text"]
    assert main([*command, "--format", "sks style, {caption}"]) == 0
    assert Path("a.txt").read_text() == f"sks style, {records()['a.png']['caption']}\n"
    save_photo(Path("a.png"), 9)
    assert main([*command, "--format", "ohwx style, {caption}"]) == 0
    assert Path("a.txt").read_text() == f"ohwx style, {records()['a.png']['caption']}\n"


def test_a_run_that_is_stopped_after_photos_were_renumbered_loses_no_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_photo(Path("c.png"), 3)
    assert main(RESUME) == 0
    correct(a="Anna", b="Ben", c="Cleo")
    rename(c="d", b="c", a="b")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Library, "follow", stop)
        assert main(RESUME) == 130
    for _ in range(2):
        found = {name: record["caption"] for name, record in records().items()}
        assert found == {"b.png": "Anna", "c.png": "Ben", "d.png": "Cleo"}
        assert main(RESUME) == 0


def test_copies_of_texts_follow_their_photo(folder: Path) -> None:
    texts = {"a": "Anna's own text", "b": "Ben's own text"}
    for name, text in texts.items():
        Path(f"{name}.txt").write_text(f"{text}\n")
    assert main([*RESUME, "--text", "--overwrite-descriptions"]) == 0
    rename(a="b", b="a")
    assert main([*RESUME, "--text"]) == 0
    assert main(["unwrite", "."]) == 0
    for name, other in ("ab", "ba"):
        assert Path(f"{name}.txt").read_text() == f"{texts[other]}\n"


def test_a_file_that_cannot_be_read_is_not_the_photo_of_its_name(folder: Path) -> None:
    digest, text = photo_digest("a.png"), "Anna at the sea"
    Path("mine.csv").write_text(f"image,caption,photo_digest\na.png,{text},{digest}\n")
    Path("a.png").rename("z.png")
    Path("a.png").write_bytes(b"torn")
    assert main(["write", "mine.csv", "--xmp"]) == 0
    assert described("z.png") == [text]
    assert not Path("a.xmp").exists()
