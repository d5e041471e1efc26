"""Captions that people write on the served page: kept whole in their table, and read again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from samples import Patch, Refused, save_photo
from serve_samples import asking, caption, make_captioner

from captioner.data.readers import read_splits
from captioner.errors import UserError
from captioner.files import file_lock, write_bytes
from captioner.serve.edits import Edits
from captioner.serve.messages import Edit
from captioner.serve.service import Service
from captioner.vision.digest import photo_digest

HEADER = "image,caption,language,photo_digest\n"
ONE, OTHER = "1" * 64, "2" * 64


def edit(image: str, caption: str, photo_digest: str = "", language: str = "") -> Edit:
    return Edit(image=image, caption=caption, language=language, photo_digest=photo_digest)


def test_an_edit_is_a_row_that_training_reads_and_the_next_server_has_it(tmp_path: Path) -> None:
    table = str(tmp_path / "edits.csv")
    photos = [save_photo(tmp_path / name) for name in ("a.png", "-1,\u202fé  2.png", "c.png")]
    edits = [("a.png", "x"), ("a.png", ' My "red",\n dog '), ("c.png", "x"), ("c.png", "")]
    with asking(Service(make_captioner(), edits=Edits(table), title="Trip")) as client:
        for image, text in [*edits, ("-1,\u202fé  2.png", "+1: \u200d")]:
            answer = client.post("/api/edits", json={"image": image, "caption": text})
        wrong: list[dict[str, str]] = [
            {"image": name} for name in ("../a.png", "a\n.png", r"..\b.png")
        ]
        wrong += [{"caption": "\0"}, {"language": "German"}, {"photo_digest": "12"}]
        for fields in wrong:
            refused = client.post("/api/edits", json={"image": "b", "caption": "x", **fields})
            assert refused.status_code == 422
        model = client.get("/api/model").json()
    empty = {"language": "", "photo_digest": ""}
    expected = [
        {"image": "a.png", "caption": 'My "red", dog', **empty},
        {"image": "-1,\u202fé  2.png", "caption": "+1: \u200d", **empty},
    ]
    assert model["edits"] == {"table": table, "edits": expected}
    assert answer.json() == expected[1]
    assert model["title"] == "Trip"
    read = {each.source: each.captions for each in read_splits(None, table)[0]}
    assert read == {photos[0]: ('My "red", dog',), photos[1]: ("+1: \u200d",)}
    assert [row.model_dump() for row in Edits(table).edits] == expected


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_the_server_answers_the_digest_of_the_file(tmp_path: Path, suffix: str) -> None:
    photo = save_photo(tmp_path / f"1.{suffix}")
    write_bytes(tmp_path / "notes.txt", b"no photo")
    sent: Any = [
        ("photo", (name, (tmp_path / name).read_bytes())) for name in (photo.name, "notes.txt")
    ]
    with asking(Service(make_captioner())) as client:
        good, bad = caption(client, sent)
    assert good["photo_digest"] == photo_digest(str(photo)) != ""
    assert "photo_digest" not in bad


def test_photos_of_one_name_have_an_edit_each_which_follows_its_photo(tmp_path: Path) -> None:
    table = tmp_path / "edits.csv"
    table.write_text("image,caption\n1.jpg,old\ntrip/2.jpg,kept\n")
    edits = Edits(str(table))
    assert table.read_text() == f"{HEADER}1.jpg,old,,\ntrip/2.jpg,kept,,\n"
    edits.save(edit("1.jpg", "a dog", ONE, "en"))  # In place of the row of its name.
    edits.save(edit("1.jpg", "ein Hund", OTHER, "de"))
    edits.save(edit("renamed.jpg", "a red dog", ONE))
    edits.save(edit("1.jpg", "a red dog", ONE))
    with pytest.raises(UserError, match="several photos have this name"):
        edits.save(edit("1.jpg", "which?"))
    edits.save(edit("renamed.jpg", "a red dog", ONE))
    edits.save(edit("2.jpg", "a cat", "3" * 64))  # Another photo's, as far as one knows.
    edits.save(edit("2.jpg", "", "3" * 64))
    edits.save(edit("trip/2.jpg", "a bird", "4" * 64))
    assert edits.save(edit("2.jpg", "a red bird", "4" * 64)).image == "trip/2.jpg"
    edits.save(edit("trip/2.jpg", ""))
    with pytest.raises(UserError, match="names a folder"):
        edits.save(edit("trip/2.jpg", "a cat"))
    assert table.read_text() == f"{HEADER}renamed.jpg,a red dog,,{ONE}\n1.jpg,ein Hund,de,{OTHER}\n"


def test_what_others_change_in_the_table_stays(tmp_path: Path) -> None:
    table = tmp_path / "edits.csv"
    edits = Edits(str(table))
    edits.save(edit("1.jpg", "a dog", ONE))
    edits.save(edit("2.jpg", "a cat", OTHER))
    pulled = f"{HEADER}1.jpg,a black dog,en,{ONE}\n3.jpg,a bird,,"  # Without an end of line.
    table.write_text(pulled)
    assert [row.caption for row in edits.edits] == ["a black dog", "a bird"]
    edits.save(edit("4.jpg", "a fish"))
    assert table.read_text() == f"{pulled}\n4.jpg,a fish,,\n"
    table.write_text("<<<<<<< HEAD\n")
    with pytest.raises(UserError, match=r"edits.csv .* in its first line"):
        edits.save(edit("5.jpg", "a horse"))
    assert table.read_text() == "<<<<<<< HEAD\n"
    assert [row.caption for row in edits.edits] == ["a black dog", "a bird", "a fish"]
    table.unlink()
    edits.save(edit("5.jpg", "a horse"))
    assert table.read_text() == f"{HEADER}5.jpg,a horse,,\n"


def test_edits_at_once_and_a_full_disk_lose_none(tmp_path: Path, monkeypatch: Patch) -> None:
    edits = Edits(str(tmp_path / "edits.csv"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: edits.save(edit(f"{number}.jpg", "a dog")), range(40)))
    content = Path(edits.table).read_bytes()
    full = Mock(side_effect=OSError(28, "No space left on device"))
    for image in ("3.jpg", "41.jpg"):
        with monkeypatch.context() as patch:
            patch.setattr("captioner.files.replace", full)
            with pytest.raises(UserError, match="No space left on device"):
                edits.save(edit(image, "a cat"))
        assert Path(edits.table).read_bytes() == content
    assert len(edits.edits) == len(Edits(edits.table).edits) == 40


def test_a_table_that_edits_would_damage_is_refused(
    tmp_path: Path, refused: Refused, monkeypatch: Patch
) -> None:
    table = tmp_path / "edits.csv"
    command = ["serve", "--port", "0", "--edits", str(table)]
    with file_lock(table):
        assert "in use by another process" in refused(command)
    for content in ("", "[1]", "image\na", "image,caption,x\na,b,c\n", "image,caption\na,b\na,c\n"):
        table.write_text(content)
        assert "edits.csv" in refused(command)
        assert table.read_text() == content
    assert "is not a .csv" in refused([*command[:-1], str(tmp_path / "edits.jsonl")])
    table.write_text("image,caption\na,b\n")
    busy = Mock(side_effect=OSError(16, "Device or resource busy"))  # A file that is mounted.
    monkeypatch.setattr("captioner.files.os.replace", busy)
    assert "mount the folder, not the file alone" in refused(command)
