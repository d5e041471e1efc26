"""Captions that people write on the served page: kept whole in their table, and read again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from samples import Patch, Refused, save_photo
from serve_samples import asking, make_captioner

from captioner.data.readers import read_splits
from captioner.errors import UserError
from captioner.files import file_lock
from captioner.serve.edits import Edits
from captioner.serve.service import Service


def test_an_edit_is_a_row_that_training_reads_and_the_next_server_has_it(tmp_path: Path) -> None:
    table = str(tmp_path / "edits.csv")
    photos = [save_photo(tmp_path / name) for name in ("a.png", "-1,\u202fé  2.png", "c.png")]
    edits = [("a.png", "x"), ("a.png", ' My "red",\n dog '), ("c.png", "x"), ("c.png", "")]
    with asking(Service(make_captioner(), edits=Edits(table), title="Trip")) as client:
        for image, caption in [*edits, ("-1,\u202fé  2.png", "+1: \u200d")]:
            answer = client.post("/api/edits", json={"image": image, "caption": caption})
        for image, caption in (("../a.png", "x"), ("a\n.png", "x"), ("a.png", "\0")):
            refused = client.post("/api/edits", json={"image": image, "caption": caption})
            assert refused.status_code == 422
        model = client.get("/api/model").json()
    expected = {"a.png": 'My "red", dog', "-1,\u202fé  2.png": "+1: \u200d"}
    assert answer.json() == model["edits"] == {"table": table, "captions": expected}
    assert model["title"] == "Trip"
    read = {each.source: each.captions for each in read_splits(None, table)[0]}
    assert read == {photos[0]: ('My "red", dog',), photos[1]: ("+1: \u200d",)}
    assert Edits(table).captions == expected


def test_edits_at_once_and_a_full_disk_lose_none(tmp_path: Path, monkeypatch: Patch) -> None:
    edits = Edits(str(tmp_path / "edits.csv"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(edits.save, map(str, range(40)), ["a dog"] * 40))
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("captioner.files.replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        edits.save("41", "a cat")
    assert len(edits.captions) == len(Edits(edits.table).captions) == 40


def test_a_table_that_edits_would_damage_is_refused(tmp_path: Path, refused: Refused) -> None:
    table = tmp_path / "edits.csv"
    command = ["serve", "--port", "0", "--edits", str(table)]
    with file_lock(table):
        assert "in use by another process" in refused(command)
    for content in ("", "[1]", "image\na", "image,caption,x\na,b,c\n", "image,caption\na,b\na,c\n"):
        table.write_text(content)
        assert "edits.csv" in refused(command)
        assert table.read_text() == content
