from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from PIL import Image
from samples import make_captioner, save_photo

from captioner.caption.captioner import SearchOptions
from captioner.errors import UserError
from captioner.recipes.photos import Captioned, Failed, Outputs, caption_photos, photo_paths


def test_a_bad_photo_is_reported_in_its_place_and_the_others_are_captioned(tmp_path: Path) -> None:
    paths = [str(save_photo(tmp_path / f"{number}.png", number)) for number in range(5)]
    Path(paths[2]).write_bytes(b"not a photo")
    model = make_captioner()
    found = list(caption_photos(model, paths, batch_size=2))
    assert [type(item) for item in found] == [Captioned, Captioned, Failed, Captioned, Captioned]
    assert [item.path for item in found] == paths
    bad = found[2]
    assert isinstance(bad, Failed)
    assert "2.png" in bad.reason
    alone = [model.caption([path])[0].text for path in paths if path != paths[2]]
    assert [item.caption.text for item in found if isinstance(item, Captioned)] == alone


def test_paths_that_name_nothing_do_not_stop_the_others(tmp_path: Path) -> None:
    photo = save_photo(tmp_path / "in" / "a.jpg")
    (tmp_path / "empty").mkdir()
    found, failed = photo_paths([str(tmp_path / "in"), str(tmp_path / "empty")])
    assert found == [str(photo)]
    assert len(failed) == 1
    assert "empty" in failed[0].reason


def test_everything_is_written(tmp_path: Path) -> None:
    paths = [str(save_photo(tmp_path / folder / "same.png", n)) for n, folder in enumerate("ab")]
    outputs = Outputs(
        photos=2,
        json=str(tmp_path / "out.json"),
        csv=str(tmp_path / "out.csv"),
        html=str(tmp_path / "out.html"),
        overlay=str(tmp_path / "overlays"),
        gif=str(tmp_path / "gifs"),
        words=str(tmp_path / "words"),
    )
    captions = []
    for item in caption_photos(make_captioner(), paths, SearchOptions(beam=3, n_best=2)):
        assert isinstance(item, Captioned)
        captions.append(item.caption)
        outputs.add(item)
    outputs.finish()
    records = json.loads((tmp_path / "out.json").read_text())
    assert [record["image"] for record in records] == paths
    for record, caption in zip(records, captions, strict=True):
        assert record["caption"] == caption.text
        assert record["words"] == list(caption.words)
        assert record["log_probability"] == pytest.approx(caption.log_probability)
        assert len(record["alternatives"]) == 1
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["image"], row["rank"]) for row in rows] == [(p, r) for p in paths for r in "12"]
    # Two photos of one name do not overwrite each other.
    assert sorted(p.name for p in (tmp_path / "overlays").iterdir()) == ["same-2.png", "same.png"]
    assert sorted(p.name for p in (tmp_path / "gifs").iterdir()) == ["same-2.gif", "same.gif"]
    for name, caption in zip(("same", "same-2"), captions, strict=True):
        assert len(list((tmp_path / "words" / name).iterdir())) == len(caption.words)
        with Image.open(tmp_path / "gifs" / f"{name}.gif") as gif:
            assert gif.n_frames >= 1
    page = (tmp_path / "out.html").read_text()
    assert page.count("data:image/jpeg") == 2


def test_one_photo_may_go_to_one_file(tmp_path: Path) -> None:
    photo = str(save_photo(tmp_path / "a.png"))
    outputs = Outputs(photos=1, overlay=str(tmp_path / "o.png"), gif=str(tmp_path / "g.gif"))
    (item,) = caption_photos(make_captioner(), [photo])
    assert isinstance(item, Captioned)
    outputs.add(item)
    outputs.finish()
    assert (tmp_path / "o.png").is_file()
    assert (tmp_path / "g.gif").is_file()


def test_one_file_for_many_photos_is_refused_before_work_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"maps\.png"):
        Outputs(photos=2, overlay=str(tmp_path / "maps.png"))
