from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import make_captioner, save_photo

from captioner.caption.captioner import SearchOptions
from captioner.errors import UserError
from captioner.recipes.scoring import score_model
from captioner.recipes.sources import Source, read_split


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Five photos, the fourth of which is not one."""
    rows = ["image,caption"]
    for number in range(5):
        save_photo(tmp_path / f"{number}.png", number)
        rows += [f"{number}.png,a brown dog runs", f"{number}.png,two red dogs number {number}"]
    (tmp_path / "3.png").write_bytes(b"not a photo")
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    return read_split("table", tmp_path / "captions.csv", None, None)


def kept(path: Path) -> dict[str, str]:
    return {record["image_id"]: record["caption"] for record in json.loads(path.read_text())}


def test_a_photo_that_cannot_be_read_is_left_out_on_request(source: Source, tmp_path: Path) -> None:
    left_out: dict[str, str] = {}
    scores = score_model(
        make_captioner(), source, None, 2, tmp_path / "kept.json", left_out=left_out
    )
    assert list(left_out) == ["3.png"]
    assert "3.png" in left_out["3.png"]
    assert scores.images == 4
    good = source.take([0, 1, 2, 4])
    assert score_model(make_captioner(), good).as_dict() == scores.as_dict()
    assert list(kept(tmp_path / "kept.json")) == good.image_ids


def test_a_refused_photo_loses_no_caption(source: Source, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"3\.png"):
        score_model(make_captioner(), source, None, 2, tmp_path / "kept.json")
    assert list(kept(tmp_path / "kept.json")) == ["0.png", "1.png"]


def test_captions_are_written_before_they_are_scored(source: Source, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="CIDEr-D"):  # Which is not defined for one photo.
        score_model(make_captioner(), source.take([0]), results=tmp_path / "kept.json")
    assert list(kept(tmp_path / "kept.json")) == ["0.png"]


def test_photos_none_of_which_can_be_read_are_refused(source: Source) -> None:
    with pytest.raises(UserError, match="not one of 1 photos could be read"):
        score_model(make_captioner(), source.take([3]), left_out={})


def test_samples_do_not_start_again_with_every_batch(source: Source, tmp_path: Path) -> None:
    search = SearchOptions(sample=True, minimum_length=6, maximum_length=6, temperature=3.0)
    same = source.take([0] * 4)
    same.image_ids[:] = [str(number) for number in range(4)]
    score_model(make_captioner(), same, search, 1, tmp_path / "kept.json")
    assert len(set(kept(tmp_path / "kept.json").values())) > 1
