"""Words follow their photo by its digest: renumbered, swapped, replaced and edited photos."""

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from samples import (
    CAPTION,
    Output,
    Patch,
    Refused,
    interrupted_after,
    save_photo,
    words_of_person,
    xmp_packet,
)

from captioner.caption.captioner import Captioner
from captioner.cli.main import main
from captioner.library import Library
from captioner.outputs import resume
from captioner.outputs.json_lines import JsonLines
from captioner.vision.digest import photo_digest

TABLE = ["--jsonl", "o.jsonl", "--resume", "--xmp"]
RESUME = [*CAPTION, ".", *TABLE]


def records() -> dict[str, dict[str, Any]]:
    found = map(json.loads, Path("o.jsonl").read_text().splitlines())
    return {record["image"]: record for record in found}


def correct(**captions: str) -> None:
    """What a person writes into the table."""
    changed = records()
    for name, caption in captions.items():
        changed[f"{name}.png"]["caption"] = caption
    Path("o.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in changed.values()))


def rename(*endings: str, **names: str) -> None:
    """Rename photos, also to each other's names, and the files beside them with these endings."""
    for ending in (".png", *endings):
        for old in names:
            Path(f"{old}{ending}").rename(f"{old}{ending}.aside")
        for old, new in names.items():
            Path(new).parent.mkdir(exist_ok=True)
            Path(f"{old}{ending}.aside").rename(f"{new}{ending}")


def described(photo: str) -> list[str]:
    return [each.text for each in Library().said(photo) if each.by in ("table", "captioner")]


def rate(name: str) -> None:
    """Another program writes a rating into a sidecar: the name's letter."""
    rating = f'<rdf:Description xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="{name}" '
    path = Path(f"{name}.xmp")
    path.write_text(path.read_text().replace("<rdf:Description ", rating))


def assert_words_are_of(photos: dict[str, str], captions: dict[str, str]) -> None:
    """What is beside photos is theirs. photos: their first names by those now."""
    for name, first in photos.items():
        assert described(f"{name}.png") == [captions[first]]
        assert f'Rating="{first}"' in Path(f"{name}.xmp").read_text()
        assert Path(f"{name}.txt").read_text() == f"{captions[first]}\n"
    beside = {str(path) for path in Path().rglob("*") if path.suffix in (".xmp", ".txt")}
    assert beside == {f"{name}{ending}" for name in photos for ending in (".xmp", ".txt")}


def rated_photos(folder: Path) -> dict[str, str]:
    """Captions of three photos, two by people, with ratings beside them, by name."""
    save_photo(Path("c.png"), 3)
    assert main([*RESUME, "--text"]) == 0
    correct(a="Anna", b="Ben")
    assert main([*RESUME, "--text"]) == 0
    for name in "abc":
        rate(name)
    return {name.removesuffix(".png"): each["caption"] for name, each in records().items()}


WRITE = ["write", "o.jsonl", "--xmp"]
RENAMES = [{"a": "b", "b": "a"}, {"b": "c", "c": "d", "a": "b"}, {"a": "year/z"}]


@pytest.mark.parametrize("command", [RESUME, WRITE])
@pytest.mark.parametrize("endings", [(), (".xmp", ".txt")])
@pytest.mark.parametrize("names", RENAMES)
def test_words_follow_renamed_photos_unless_they_went_along(
    names: dict[str, str],
    endings: tuple[str, ...],
    command: list[str],
    folder: Path,
    capsys: Output,
    monkeypatch: Patch,
) -> None:
    captions, before = rated_photos(folder), records()
    rename(*endings, **names)
    photos = {names.get(name, name): name for name in "abc"}
    monkeypatch.setattr(Captioner, "caption_annotations", None)  # It is not asked.
    if command == RESUME:
        assert main([*command, "--dry-run"]) == 2
        about = f"{len(names)} photo{'s'[: len(names) - 1]} of the table have other names now"
        assert about in capsys.readouterr().err
        assert records() == before
    for _ in range(2):
        assert main([*command, "--text"]) == 0
        assert_words_are_of(photos, captions)
    if command == RESUME:
        assert f"o.jsonl: {len(names)} moved record" in capsys.readouterr().err
        for name, first in photos.items():
            files = {"xmp": f"{name}.xmp", "text": f"{name}.txt"}
            record = before[f"{first}.png"] | {"image": f"{name}.png", "files": files}
            assert records()[f"{name}.png"] == record


@pytest.mark.parametrize("command", [RESUME, WRITE])
def test_a_new_photo_keeps_the_sidecar_that_it_brings_to_an_old_name(
    command: list[str], folder: Path
) -> None:
    captions = rated_photos(folder)
    rename(".xmp", ".txt", a="z")
    save_photo(Path("a.png"), 9)
    Path("a.xmp").write_bytes(xmp_packet("<dc:description>Mine</dc:description>"))
    Path("a.txt").write_text("Mine")
    for _ in range(2):
        assert main([*command, "--text"]) == 0
        assert described("z.png") == [captions["a"]]
        assert 'Rating="a"' in Path("z.xmp").read_text()
        assert words_of_person(Path("a.png")) == Path("a.txt").read_text() == "Mine"
    assert not {*Path().glob("*.orphaned")}


@pytest.mark.parametrize(
    ("owner", "function"), [(resume, "follow"), (JsonLines, "rewrite"), (os, "rename")]
)
def test_a_run_that_is_stopped_after_photos_were_renamed_is_gone_on_with(
    owner: Any, function: str, folder: Path, monkeypatch: Patch
) -> None:
    captions = rated_photos(folder)
    names = {"b": "c", "c": "d", "a": "b"}
    rename(**names)
    calls, real = [*range(2)], getattr(owner, function)

    def stop(*arguments: Any) -> Any:
        if owner is not os or not calls:
            raise KeyboardInterrupt
        calls.pop()
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(owner, function, stop)
        assert main([*RESUME, "--text"]) == 130
    for _ in range(2):
        assert main([*RESUME, "--text"]) == 0
        assert_words_are_of({new: old for old, new in names.items()}, captions)
        assert {name[:-4]: each["caption"] for name, each in records().items()} == {
            new: captions[old] for old, new in names.items()
        }


def test_a_second_correction_of_a_caption_is_written_too(folder: Path) -> None:
    assert main([*RESUME, "--text"]) == 0
    for caption in ("Anna", "Anna at sea", "Anna"):
        correct(a=caption)
        for _ in range(2):
            assert main([*RESUME, "--text"]) == 0
            assert described("a.png") == [caption]
            assert Path("a.txt").read_text() == f"{caption}\n"
    Path("a.xmp").unlink()
    correct(a="Anna in the rain")  # By the text alone, too.
    assert main([*CAPTION, ".", "--jsonl", "o.jsonl", "--resume", "--text"]) == 0
    assert Path("a.txt").read_text() == "Anna in the rain\n"


@pytest.mark.parametrize("command", [[*CAPTION, ".", "--xmp"], ["write", "mine.csv", "--xmp"]])
def test_a_sidecar_is_of_the_photo_that_was_described_last(
    command: list[str], folder: Path
) -> None:
    Path("mine.csv").write_text("image,caption\na.png,Anna\nb.png,Ben\n")
    assert main(RESUME) == 0
    rate("a")
    rename(a="b", b="a")
    assert main(command) == 0
    assert ("Rating" in Path("b.xmp").read_text()) == ("write" in command)
    sidecar, (text,) = Path("a.xmp"), described("a.png")
    sidecar.write_text(sidecar.read_text().replace(f"{text}<", "Anna<", 1))
    assert main(RESUME) == 0
    assert Library().said("a.png")[0].text == "Anna"


@pytest.mark.parametrize("command", [RESUME, WRITE])
def test_equal_photos_with_other_names_keep_a_caption_each(
    command: list[str], folder: Path, capsys: Output
) -> None:
    shutil.copy("a.png", "c.png")
    assert main(RESUME) == 0
    correct(a="Anna", c="Anna, again")
    rename(a="new/b", c="new/a")
    for _ in range(2):
        assert main(command) == 0
        assert described("new/a.png") == ["Anna"]  # By its name.
        assert described("new/b.png") == ["Anna, again"]
    Path("new/b.png").unlink()
    capsys.readouterr()
    assert main(command) == (2 if command == WRITE else 0)
    named = "1 missing image: see --images (c.png)" if command == WRITE else "keeps 1 record"
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("kill", [0, 1, 2, 3, 9])
def test_write_finds_sidecars_that_it_moved_before(
    kill: int, folder: Path, monkeypatch: Patch, capsys: Output
) -> None:
    assert main(RESUME) == 0
    correct(a="Anna")
    assert main(WRITE) == 0
    rate("a")
    rename(a="b", b="a")
    assert main(WRITE) == 0
    assert described("b.png") == ["Anna"]
    rename(a="b", b="a")  # The names are those of the table again.
    capsys.readouterr()
    assert main([*WRITE, "--dry-run"]) == 0
    said = "have other names now; without --dry-run, sidecars and texts follow them first"
    assert said in capsys.readouterr().err
    with interrupted_after(kill, monkeypatch):
        main(WRITE)
    assert main(WRITE) == 0
    assert described("a.png") == ["Anna"]
    assert "Anna" not in described("b.png")
    assert 'Rating="a"' in Path("a.xmp").read_text()
    assert not [*Path().glob("*.moving")]


def test_of_equal_photos_the_one_in_the_folder_is_found_not_a_backup_of_the_old_name(
    folder: Path, capsys: Output
) -> None:
    Path("photos").mkdir()
    Path("backup").mkdir()
    shutil.copy("a.png", "photos/1.png")
    shutil.move("a.png", "backup/1.png")
    shutil.copy("b.png", "backup/b1.png")  # The first of equal ones, in every run.
    shutil.move("b.png", "backup/b0.png")
    rows = f"1.png,Anna,{photo_digest('photos/1.png')}", f"b.png,Bo,{photo_digest('backup/b0.png')}"
    Path("photos/edits.csv").write_text("\n".join(["image,caption,photo_digest", *rows]))
    write = ["write", "photos/edits.csv", "--xmp"]
    assert main(write) == 0
    Path("photos/1.png").rename("photos/2.png")
    Path("photos/1.txt").write_text("of a person")
    assert main(write) == 0
    found = {path.as_posix() for path in Path().rglob("*.xmp")}
    assert found == {"photos/2.xmp", "backup/b0.xmp"}
    assert Path("photos/2.txt").read_text() == "of a person"
    Path("photos/1.txt").write_text("of whom?")
    capsys.readouterr()
    os.unlink("photos/2.txt")
    os.unlink("photos/2.xmp")
    main(write)
    assert capsys.readouterr().err.count("1.txt stays: nothing says") == 1


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
    before_it = Path("o.jsonl").stat()
    assert main(RESUME) == 0
    after = Path("o.jsonl").stat()  # There is nothing to do.
    assert (after.st_ino, after.st_mtime_ns) == (before_it.st_ino, before_it.st_mtime_ns)
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
    rename(a="b", b="a")
    for table, found in zip(tables[1::2], rows, strict=True):
        assert [row["photo_digest"] for row in found] == digests
        assert main(["write", table, "--xmp"]) == 0
        captions = [[row["caption"]] for row in found]
        assert [described(name) for name in ("b.png", "a.png")] == captions


def test_pruning_removes_what_captioner_alone_wrote(folder: Path, capsys: Output) -> None:
    for number, name in enumerate("cde"):
        save_photo(Path(f"{name}.png"), 10 + number)
    assert main([*RESUME, "--text"]) == 0
    rate("b")
    correct(d="Rex")
    for name in "abcd":
        Path(f"{name}.png").unlink()
    save_photo(Path("c.jpg"))
    capsys.readouterr()
    resume = [*CAPTION, "e.png", *TABLE]
    for options in (["--dry-run"], ["--prune", "--dry-run"]):
        assert main([*resume, *options]) == 0
        assert "o.jsonl keeps 4 records of photos that are gone" in capsys.readouterr().err
    assert main([*resume, "--prune"]) == 0
    printed = capsys.readouterr().err
    assert "o.jsonl: pruned 3 records and 1 sidecar\n" in printed
    assert "keeps 1 record of photos that are gone, d.png the first" in printed
    assert [*records()] == ["d.png", "e.png"]
    assert {*map(str, Path().glob("*.xmp"))} == {"b.xmp", "c.xmp", "d.xmp", "e.xmp"}
    assert len([*Path().glob("*.txt")]) == 5


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


def test_a_file_that_cannot_be_read_is_not_the_photo_of_its_name(folder: Path) -> None:
    digest, text = photo_digest("a.png"), "Anna at the sea"
    Path("mine.csv").write_text(f"image,caption,photo_digest\na.png,{text},{digest}\n")
    Path("a.png").rename("z.png")
    Path("a.png").write_bytes(b"torn")
    assert main(["write", "mine.csv", "--xmp"]) == 0
    assert described("z.png") == [text]
    assert not Path("a.xmp").exists()


def test_a_name_that_no_file_has_is_that_of_a_photo_that_is_gone(
    folder: Path, capsys: Output
) -> None:
    row = {"image": "\ud800.png", "caption": "Anna", "model": "default", "by": "person"}
    lost = {**row, "image": "\ud801.png", "photo_digest": photo_digest("b.png")}
    Path("o.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(lost)}\n")
    assert main(WRITE) == 2
    assert "1 missing image: see --images (\\ud800.png)" in capsys.readouterr().err
    assert described("b.png") == ["Anna"]
    assert main([*RESUME, "--resume-any"]) == 0
    assert "o.jsonl keeps 1 record of photos that are gone" in capsys.readouterr().err


def test_photos_of_a_table_lie_beside_it_or_in_the_working_folder(
    folder: Path, capsys: Output
) -> None:
    save_photo(Path("out/c.png"), 3)
    rows = f"c.png,Cleo\na.png,Ann\n{Path('a.png').absolute()},Anna\n"
    Path("out/o.csv").write_text(f"image,caption\n{rows}")
    assert main(["write", "out/o.csv", "--xmp"]) == 0
    assert "2 described\n" in capsys.readouterr().err
    assert (described("out/c.png"), described("a.png")) == (["Cleo"], ["Anna"])
    captions = {"image": "c.png", "caption": "Cleo", "photo_digest": photo_digest("out/c.png")}
    Path("out/o.jsonl").write_text(json.dumps(captions))
    Path("out/c.png").rename("out/d.png")
    for _ in range(2):  # Found by its digest, with what is beside its name in the table's folder.
        assert main(["write", "out/o.jsonl", "--xmp"]) == 0
        assert described("out/d.png") == ["Cleo"]
    assert not Path("out/c.xmp").exists()
