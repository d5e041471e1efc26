from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from data_samples import counts, read, write_json

from captioner.errors import UserError

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "coco"


def document() -> dict[str, Any]:
    return {
        "info": {"year": 2014},
        "images": [
            {"id": 42, "file_name": "COCO_val2014_000000000042.jpg", "height": 4},
            {"id": 7, "file_name": "COCO_val2014_000000000007.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "caption": "A dog.\n"},
            {"id": 2, "image_id": 42, "caption": "A cat."},
            {"id": 3, "image_id": 7, "caption": "The dog."},
        ],
    }


def photos(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_images_have_their_captions_in_order(tmp_path: Path) -> None:
    file = write_json(tmp_path / "captions_val2014.json", document())
    folder = photos(tmp_path / "p", *(image["file_name"] for image in document()["images"]))
    images = read("coco", file, folder).images
    assert [(image.image_id, image.captions) for image in images] == [
        (42, ("A cat.",)),
        (7, ("A dog.", "The dog.")),
    ]
    assert images[0].path == folder / "COCO_val2014_000000000042.jpg"
    assert images[0].tokens is None


def test_the_layout_of_2014_is_found_from_its_root(tmp_path: Path) -> None:
    write_json(tmp_path / "annotations" / "captions_val2014.json", document())
    photos(tmp_path / "train2014")
    folder = photos(tmp_path / "val2014", *(image["file_name"] for image in document()["images"]))
    images = read("coco", tmp_path, tmp_path, split="val2014").images
    assert images[0].path == folder / "COCO_val2014_000000000042.jpg"


def test_the_layout_of_2017_is_found_from_its_root(tmp_path: Path) -> None:
    value = document()
    for image in value["images"]:
        image["file_name"] = image["file_name"].removeprefix("COCO_val2014_")
    file = write_json(tmp_path / "annotations" / "captions_train2017.json", value)
    folder = photos(tmp_path / "train2017", "000000000042.jpg", "000000000007.jpg")
    images = read("coco", file, tmp_path).images
    assert images[1].path == folder / "000000000007.jpg"
    assert read("coco", file.parent, tmp_path, split="train2017").images == images
    assert read("coco", file, tmp_path, split="train").images == images


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("captions_train2017.json", "val"),
        ("captions_train2017.json", "val2017"),
        ("captions_train2017.json", "train2014"),
        ("captions_train2017.json", "train201"),
        ("coco_val.json", "train"),
        ("captions.json", "trainImages.txt"),
    ],
)
def test_a_split_that_is_not_of_the_file_is_refused(tmp_path: Path, name: str, split: str) -> None:
    file = write_json(tmp_path / name, document())
    with pytest.raises(UserError, match=rf"{name}.*split.*, not '{split}'$"):
        read("coco", file, tmp_path, split=split, check_files=False)


@pytest.mark.parametrize("name", ["coco_val.json", "captions_val2017.json", "evaluation.json"])
@pytest.mark.parametrize("split", ["val", "val2017"])
def test_a_file_is_read_whole_where_its_name_says_no_other_split(
    tmp_path: Path, name: str, split: str
) -> None:
    file = write_json(tmp_path / name, document())
    assert len(read("coco", file, tmp_path, split=split, check_files=False).images) == 2


def test_a_folder_of_annotations_needs_a_split_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the split to read from it must be named"):
        read("coco", tmp_path, tmp_path)
    with pytest.raises(UserError, match=r"neither .*captions_val2014.json nor .*annotations"):
        read("coco", tmp_path, tmp_path, split="val2014")


def test_problems_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    value = document()
    value["images"] += [value["images"][0], {"id": 8, "file_name": "8.jpg"}]
    value["images"] += [{"id": 9, "file_name": "9.jpg"}]
    value["annotations"] += [
        {"id": 4, "image_id": 42, "caption": "  "},
        {"id": 5, "image_id": 1000, "caption": "Of nothing"},
        {"id": 2, "image_id": 42, "caption": "Twice"},
        {"id": 6, "image_id": 9, "caption": "No file"},
    ]
    file = write_json(tmp_path / "captions_val2014.json", value)
    folder = photos(tmp_path / "p", "8.jpg", *(i["file_name"] for i in document()["images"]))
    result = read("coco", file, folder, on_problem="skip")
    assert [image.image_id for image in result.images] == [42, 7]
    assert result.images[0].captions == ("A cat.",)
    assert counts(result.problems) == {
        "duplicate image": 1,
        "empty caption": 1,
        "duplicate caption": 1,
        "caption without an image": 1,
        "image without captions": 1,
        "missing image": 1,
    }
    with pytest.raises(UserError, match=r"\(annotation 5 is of image 1000, which is not there\)"):
        read("coco", file, folder)


@pytest.mark.data
@pytest.mark.skipif(not REAL.is_dir(), reason="the real COCO captions are not in ../shared/data")
def test_real_captions_of_2017() -> None:
    file = REAL / "captions_val2017_subset.json"
    result = read("coco", file, REAL, check_files=False)
    assert len(result.images) == 4831
    assert sum(len(image.captions) for image in result.images) == 24169
    assert min(len(image.captions) for image in result.images) == 5
    assert len(result.problems) == 0
    assert result.images[0].image_id == 37777
    assert result.images[0].path.name == "000000037777.jpg"
