from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from data_samples import counts, read, write_json

from captioner.errors import UserError


def sentence(text: str) -> dict[str, Any]:
    return {"raw": text, "tokens": text.lower().strip(" .").split(), "imgid": 0, "sentid": 0}


def entry(number: int, split: str, folder: str | None = "val2014") -> dict[str, Any]:
    result: dict[str, Any] = {
        "filename": f"COCO_val2014_{number:012d}.jpg",
        "split": split,
        "imgid": number - 100,
        "sentences": [sentence(f"A photo {number}."), sentence("A dog .")],
    }
    if folder is not None:
        result |= {"filepath": folder, "cocoid": number}
    return result


def document() -> dict[str, Any]:
    splits = ["test", "train", "restval", "val", "train"]
    folders = ["val2014", "train2014", "val2014", "val2014", "train2014"]
    entries = [
        entry(n, split, folder)
        for n, (split, folder) in enumerate(zip(splits, folders, strict=True), 100)
    ]
    return {"dataset": "coco", "images": entries}


def ids(file: Path, split: str | None) -> list[int | str]:
    result = read("karpathy", file, file.parent, split, check_files=False)
    return [image.image_id for image in result.images]


def test_splits(tmp_path: Path) -> None:
    file = write_json(tmp_path / "dataset_coco.json", document())
    assert ids(file, "train") == [101, 102, 104]
    assert ids(file, "restval") == [102]
    assert ids(file, "val") == [103]
    assert ids(file, "test") == [100]
    assert ids(file, None) == [100, 101, 102, 103, 104]
    with pytest.raises(UserError, match="no split 'dev', only restval, test, train, val"):
        ids(file, "dev")


def test_captions_come_with_their_tokens(tmp_path: Path) -> None:
    file = write_json(tmp_path / "dataset_coco.json", document())
    (image,) = read("karpathy", file, tmp_path, "val", check_files=False).images
    assert image.captions == ("A photo 103.", "A dog .")
    assert image.tokens == (("a", "photo", "103"), ("a", "dog"))


def test_photos_are_found_in_the_folders_of_coco_and_in_one_folder(tmp_path: Path) -> None:
    file = write_json(tmp_path / "dataset_coco.json", document())
    (tmp_path / "train2014").mkdir()
    train, rest, _ = read("karpathy", file, tmp_path, "train", check_files=False).images
    assert train.path == tmp_path / "train2014" / "COCO_val2014_000000000101.jpg"
    assert rest.path == tmp_path / "COCO_val2014_000000000102.jpg"


def test_flickr_files_have_neither_folder_nor_number(tmp_path: Path) -> None:
    value = {"dataset": "flickr8k", "images": [entry(5, "train", folder=None)]}
    file = write_json(tmp_path / "dataset_flickr8k.json", value)
    name = "COCO_val2014_000000000005.jpg"
    (tmp_path / name).touch()
    (image,) = read("karpathy", file, tmp_path, "train").images
    assert (image.image_id, image.path) == (name, tmp_path / name)


def test_problems_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    value = document()
    value["images"] += [entry(101, "train"), entry(100, "train"), entry(106, "train")]
    value["images"][-1]["sentences"] = []
    value["images"][1]["sentences"][0] = {"raw": " . ", "tokens": []}
    value["images"][4]["sentences"][0]["tokens"] = ["..."]
    value["images"][3]["sentences"] = []
    for number in (101, 102):
        (tmp_path / f"COCO_val2014_{number:012d}.jpg").touch()
    file = write_json(tmp_path / "dataset_coco.json", value)
    result = read("karpathy", file, tmp_path, "train", on_problem="skip")
    assert [image.image_id for image in result.images] == [101, 102]
    assert result.images[0].captions == ("A dog .",)
    assert counts(result.problems) == {
        "empty caption": 2,
        "duplicate image": 1,
        "image in two splits": 1,
        "missing image": 2,
    }
    with pytest.raises(UserError, match=r"sentence 0 of image COCO_val2014_0+101.jpg \(record 1\)"):
        read("karpathy", file, tmp_path, "train")
