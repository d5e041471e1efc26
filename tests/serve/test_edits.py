"""Captions that people write on the served page: kept whole in their table, and read again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from samples import Patch, Refused, save_photo
from serve_samples import asking, make_captioner

from captioner.data.readers import read_splits
from captioner.files import file_lock
from captioner.serve.edits import Edits
from captioner.serve.service import Service


def test_an_edit_is_a_row_that_training_reads_and_the_next_server_has_it(tmp_path: Path) -> None:
    table = tmp_path / "edits.csv"
    names = ["a b.png", "1,é.png", "c.png"]
    photos = [save_photo(tmp_path / name) for name in names]
    with asking(Service(make_captioner(), edits=Edits(str(table)), title="Trip")) as client:
        written = [
            ("a b.png", "draft"),
            ("c.png", "x"),
            ("a b.png", ' My "red",\n dog '),
            ("c.png", ""),
        ]
        for image, caption in [*written, ("1,é.png", "a cat")]:
            answer = client.post("/api/edits", json={"image": image, "caption": caption})
            assert answer.status_code == 200
        model = client.get("/api/model").json()
    expected = {"a b.png": 'My "red", dog', "1,é.png": "a cat"}
    assert answer.json() == model["edits"] == {"table": str(table), "captions": expected}
    assert model["title"] == "Trip"
    read = {each.source: each.captions for each in read_splits(None, table)[0]}
    assert read == {photos[0]: ('My "red", dog',), photos[1]: ("a cat",)}
    assert Edits(str(table)).captions == expected


def test_edits_at_once_are_all_kept_and_a_full_disk_loses_none(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    edits = Edits(str(tmp_path / "edits.csv"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(edits.save, map(str, range(40)), ["a dog"] * 40))
    assert len(Edits(edits.table).captions) == 40

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("captioner.files.replace", full)
    with asking(Service(make_captioner(), edits=edits)) as client:
        answer = client.post("/api/edits", json={"image": "41", "caption": "a cat"})
        assert answer.status_code == 422
        assert "No space left on device" in answer.json()["error"]
    assert len(edits.captions) == len(Edits(edits.table).captions) == 40


@pytest.mark.parametrize(
    "content", ["", "image\na\n", "image,caption,split\na,b,c\n", "image,caption\na,b\na,c\n"]
)
def test_a_table_that_edits_would_damage_is_refused(
    tmp_path: Path, refused: Refused, content: str
) -> None:
    table = tmp_path / "edits.csv"
    table.write_text(content)
    sentence = refused(["serve", "--port", "0", "--edits", str(table)])
    assert "edits.csv" in sentence
    assert table.read_text() == content


def test_one_server_writes_a_table(tmp_path: Path, refused: Refused) -> None:
    table = str(tmp_path / "edits.csv")
    with file_lock(table):
        assert "in use by another process" in refused(["serve", "--port", "0", "--edits", table])
