"""Captions of tables go into photos and beside them, and out again, without a model."""

import json
import subprocess
from pathlib import Path

import pytest
from samples import (
    CAPTION,
    Output,
    Patch,
    imported,
    save_photo,
    words_of_person,
    xmp_packet,
    xmp_texts,
)

from captioner.cli.main import main

MINE = "My brother's two dogs."


def texts(photo: str, name: str = "dc:description") -> list[str]:
    """The texts of a property in a photo's sidecar."""
    return xmp_texts(Path(photo).with_suffix(".xmp"), name)


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().iterdir() if path.is_file()}


def tables() -> list[str]:
    """The tables of two photos, in which a person changed the first caption of the first."""
    command = [*CAPTION, "a.png", "b.png", "--n-best", "2", "--jsonl", "o.jsonl"]
    assert main([*command, "--csv", "o.csv", "--json", "o.json"]) == 0
    caption = json.loads(Path("o.jsonl").read_text().splitlines()[0])["caption"]
    for name in ("o.jsonl", "o.csv", "o.json"):
        content = Path(name).read_text().replace(caption, MINE, 1)
        Path(name).write_text(content.replace("png,1,", "png,1.0,"))  # As pandas may write it.
    assert main([*command, "--resume", "--parquet", "o.parquet"]) == 0
    return ["o.jsonl", "o.csv", "o.json", "o.parquet"]


def test_captions_of_any_table_are_written_and_a_persons_stay(folder: Path, capsys: Output) -> None:
    names = tables()
    words = json.loads(Path("o.jsonl").read_text().splitlines()[0])["words"]
    for name in names:
        assert main(["write", name, "--xmp", "--text", "--dry-run"]) == 0
        assert "a.xmp would get" in capsys.readouterr().err
        assert main(["write", name, "--xmp", "--text"]) == 0
        assert texts("a.png", "captioner:by") == ["person"]
        assert texts("a.png", "captioner:confidence") == texts("b.png", "captioner:by") == []
        assert words_of_person(Path("a.png")) == Path("a.txt").read_text().strip() == MINE
        assert texts("b.png", "captioner:description") == [Path("b.txt").read_text().strip()]
        before = [path.stat() for path in Path().glob("*.[xt][mx]*")]
        capsys.readouterr()
        assert main(["write", name, "--xmp", "--text", "--dry-run"]) == 0
        assert capsys.readouterr() == ("2 described already\n", "")
        assert main(["write", name, "--xmp", "--text"]) == 0
        assert before == [path.stat() for path in Path().glob("*.[xt][mx]*")]
        assert main([*CAPTION, "a.png", "--xmp"]) == 0  # A machine's caption does not replace it.
        assert texts("a.png") == [MINE]
        capsys.readouterr()
        Path("c.txt").write_text("Mine")
        assert main(["unwrite", *map(str, Path().glob("[abc].*")), "c.png"]) == 0
        assert "2 texts left" in capsys.readouterr().err  # A person's, and Mine.
        assert [*Path().glob("*.xmp")] == [*Path().glob("b.txt")] == []
        assert main(["write", name, "--text"]) == main(["unwrite", name]) == 0
        assert {*Path().glob("*.txt")} == {Path("a.txt"), Path("c.txt")}
        Path("a.txt").write_text(" ".join(words))  # The model's, which gives way.
        capsys.readouterr()


def test_a_persons_own_file_is_written_in_its_language_and_written_again(
    folder: Path, capsys: Output
) -> None:
    assert main([*CAPTION, "a.png", "--xmp"]) == 0
    Path("sub").mkdir()
    save_photo(Path("c.png"))
    for caption in ("Zwei Hunde", "Drei Hunde"):
        rows = f"a.png,3,'-{caption}\ngone.png,1,Katze\nb,5,Ein Boot\nb,6,Boot\nc.png,1,\n"
        Path("sub/edits.csv").write_text(f"image,rank,caption\n{rows}")
        assert main(["write", "sub/edits.csv", "--xmp", "--language", "de"]) == 2
        errors = capsys.readouterr().err
        assert "1 missing image: see --images (gone.png)" in errors
        assert main(["unwrite", "sub/edits.csv", "--dry-run", "--images", "."]) == 2
        done = "2 described" if caption == "Zwei Hunde" else "1 described, 1 described already"
        assert errors.endswith(f"captioner: 1 not written, {done}, 1 left out\n")
        assert texts("a.png") == [f"-{caption}"]
        assert texts("a.png", "captioner:language") == ["de"]
    Path("c.jsonl").write_text(
        '{"image": "a.png", "caption": "x", "words": 5, "model": "m", "log_probability": 1}\n'
        '{"image": "a.png", "caption": "x", "language": "de_DE"}\n'
    )
    for table, reason in (("gone.csv", "does not exist"), ("c.jsonl", "2 rows of another type")):
        assert main(["write", table, "--xmp"]) == 2
        assert reason in capsys.readouterr().err


def test_a_table_with_the_captions_needs_no_model(
    folder: Path, capsys: Output, monkeypatch: Patch
) -> None:
    command = [*CAPTION, "a.png", "--jsonl", "o.jsonl", "--resume"]
    assert main(command) == 0
    before = json.loads(Path("o.jsonl").read_text())
    monkeypatch.setattr("captioner.loading.load", None)
    assert main([*command, "--xmp"]) == 0
    assert "1 of 1 photos are captioned already" in capsys.readouterr().err
    assert json.loads(Path("o.jsonl").read_text()) == before | {"files": {"xmp": "a.xmp"}}
    assert texts("a.png") == [before["caption"]]
    save_photo(Path("a.jpg"), 5)
    assert main(["unwrite", "a.jpg"]) == 0  # The sidecar is that of a.png.
    assert texts("a.png") == [before["caption"]]
    code = f"from captioner.cli.main import main; main({['write', 'o.jsonl', '--xmp']})"
    assert {"torch", "onnxruntime"}.isdisjoint(imported(code, "torch", "onnxruntime"))


def test_the_words_of_a_person_come_back_also_as_texts(folder: Path, capsys: Output) -> None:
    Path("t.csv").write_text("image,caption\na.png,A boat\n")
    described = "<dc:description>Mine</dc:description>"
    for mine in ("Mine", "Mine, too"):
        Path("a.xmp").write_bytes(xmp_packet(described.replace("Mine", mine)))
        Path("a.txt").write_text(mine)
        assert main(["write", "t.csv", "--xmp", "--text", "--overwrite-descriptions"]) == 0
        written = contents()
        assert main(["unwrite", ".", "--dry-run"]) == 0
        assert "a.xmp would lose 'A boat', 'boat'\n" in capsys.readouterr().err
        assert contents() == written
        assert main(["unwrite", "."]) == 0
        assert capsys.readouterr().err.endswith("captioner: 1 sidecars, 1 texts\n")
        assert (texts("a.png"), Path("a.txt").read_text()) == ([mine], mine)
        assert not Path("a.txt.before").exists()
    Path("t.csv").write_text("image,caption\na.png,A boat\nr.dng,A boat\n")
    Path("r.dng").touch()
    Path("b.xmp").write_bytes(b"<x")  # Of others: neither read nor reported.
    assert main(["write", "t.csv", "--xmp", "--text", "--overwrite-descriptions"]) == 0
    Path("a.txt").write_text("Changed")
    Path("b.txt").write_text("boat")  # A person's, though it has the words of a caption.
    Path("a.xmp").write_text(Path("a.xmp").read_text().replace("A boat<", "Changed<", 1))
    assert main(["unwrite", ".", "r.dng"]) == 0
    assert (texts("a.png"), Path("a.txt").read_text()) == (["Changed"], "Changed")
    assert not Path("r.xmp").exists()
    assert main(["unwrite", "gone.png"]) == 2
    assert "gone.png does not exist" in capsys.readouterr().err


@pytest.mark.exiftool
def test_photos_whose_pixels_stay_are_not_captioned_again(
    folder: Path, capsys: Output, monkeypatch: Patch
) -> None:
    photos = [str(save_photo(Path(name))) for name in ("a.jpg", "c.png", "d.webp")]
    command = [*CAPTION, *photos, "--jsonl", "o.jsonl", "--resume"]
    assert main(command) == main(["write", "o.jsonl", "--embed"]) == 0
    subprocess.run(["exiftool", "-q", "-overwrite_original", "-Rating=4", *photos], check=True)
    monkeypatch.setattr("captioner.loading.load", None)
    for _ in range(2):
        assert main(command) == 0
        assert "3 of 3 photos are captioned already" in capsys.readouterr().err
        monkeypatch.setattr("captioner.outputs.resume.photo_digest", None)  # Once is enough.
