"""COCO's caption files, Karpathy's splits and Flickr's token files."""

import re
from pathlib import Path
from typing import Any

import pytest
from data_samples import counts, read, write_json

from captioner.data.readers import format_of
from captioner.errors import UserError

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"

NAMES = ["COCO_val2014_000000000042.jpg", "COCO_val2014_000000000007.jpg"]


def coco() -> dict[str, Any]:
    return {
        "info": {"year": 2014},
        "images": [{"id": 42, "file_name": NAMES[0], "x": 4}, {"id": 7, "file_name": NAMES[1]}],
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


def test_images_of_coco_have_their_captions_in_order(tmp_path: Path) -> None:
    file = write_json(tmp_path / "captions_val2014.json", coco())
    folder = photos(tmp_path / "p", *NAMES)
    images = read("coco", file, folder).images
    assert [(image.image_id, image.path, image.captions) for image in images] == [
        (42, folder / NAMES[0], ("A cat.",)),
        (7, folder / NAMES[1], ("A dog.", "The dog.")),
    ]


@pytest.mark.parametrize("year", [2014, 2017])
def test_the_layouts_of_coco_are_found_from_their_root(tmp_path: Path, year: int) -> None:
    value, names = coco(), NAMES
    if year == 2017:
        names = [name.removeprefix("COCO_val2014_") for name in NAMES]
        for image, name in zip(value["images"], names, strict=True):
            image["file_name"] = name
    file = write_json(tmp_path / "annotations" / f"captions_val{year}.json", value)
    photos(tmp_path / "train2014")
    folder = photos(tmp_path / f"val{year}", *names)
    images = read("coco", file, tmp_path).images
    assert images[1].path == folder / names[1]
    for folder in (tmp_path, file.parent):
        assert read("coco", folder, tmp_path, split=f"val{year}").images == images
    assert read("coco", file, tmp_path, split="val").images == images


@pytest.mark.parametrize("name", ["coco_val.json", "captions_val2017.json"])
@pytest.mark.parametrize("split", ["val", "val2017"])
def test_a_file_of_coco_is_read_whole_where_its_name_says_no_other_split(
    tmp_path: Path, name: str, split: str
) -> None:
    file = write_json(tmp_path / name, coco())
    assert len(read("coco", file, tmp_path, split=split, check_files=False).images) == 2


def test_problems_of_coco_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    value = coco()
    value["images"] += [value["images"][0], {"id": 8, "file_name": "8.jpg"}]
    value["images"] += [{"id": 9, "file_name": "9.jpg"}]
    value["annotations"] += [
        {"id": 4, "image_id": 42, "caption": "  "},
        {"id": 5, "image_id": 1000, "caption": "Of nothing"},
        {"id": 6, "image_id": 9, "caption": "No file"},
    ]
    file = write_json(tmp_path / "captions_val2014.json", value)
    folder = photos(tmp_path / "p", "8.jpg", *NAMES)
    images, problems = read("coco", file, folder, on_problem="skip")
    assert [(image.image_id, len(image.captions)) for image in images] == [(42, 1), (7, 2)]
    kinds = ["duplicate image", "empty caption", "caption without an image"]
    assert counts(problems) == dict.fromkeys([*kinds, "image without captions", "missing image"], 1)
    with pytest.raises(UserError, match=r"\(annotation 5 is of image 1000, which is not there\)"):
        read("coco", file, folder)


@pytest.mark.parametrize(
    ("listed", "used", "found"),
    [
        (["a_1", "a_2"], ["a_1", "a_2"], ["a_1", "a_2"]),
        (["1", "2"], [1, 2], ["1", "2"]),
        ([1, 2], ["1", "2"], [1, 2]),
        ([1, "b"], ["1", "b"], [1, "b"]),
        ([1, "b"], [1, "b"], [1, "b"]),
        ([1, "2"], [1, 2], "1 caption without an image (annotation 2 is of image 2,"),
        ([1, "1"], [1, "1"], "1 duplicate image (image 1 is the same as image 1)"),
        (["1", "2"], ["1", 3], "(annotation 3 is of image 3, which is not there)"),
        ([1.5], [1.5], "images[0].id should be a whole number or text, found 1.5"),
    ],
)
def test_ids_of_coco_are_numbers_or_text(
    tmp_path: Path, listed: list[Any], used: list[Any], found: list[Any] | str
) -> None:
    images = [{"id": each, "file_name": f"{each}.jpg"} for each in listed]
    annotations = [{"id": f"{each}", "image_id": each, "caption": f"Photo {each}"} for each in used]
    file = write_json(tmp_path / "c.json", {"images": images, "annotations": annotations})
    if isinstance(found, str):
        with pytest.raises(UserError, match=re.escape(found)):
            read("coco", file, check_files=False)
    else:
        captions = [
            (each.image_id, each.captions) for each in read("coco", file, check_files=False)[0]
        ]
        assert captions == [(each, (f"Photo {each}",)) for each in found]


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("c.json", {"images": [], "annotations": []}, "coco"),
        ("c.json", {"images": []}, "karpathy"),
        ("c.json", [], "table"),
        ("c.json", {"data": {"format": "coco"}}, None),
        ("c.yaml", {"images": []}, None),
        ("c.csv", "image", "table"),
    ],
)
def test_a_format_is_known_by_its_fields(
    tmp_path: Path, name: str, content: Any, format: str | None
) -> None:
    assert format_of(write_json(tmp_path / name, content)) == format
    assert format_of(tmp_path) == "table"
    assert format_of(tmp_path / "missing.json") is None


def test_without_a_format_or_a_folder_both_are_found(tmp_path: Path) -> None:
    photos(tmp_path, *NAMES)
    file = write_json(tmp_path / "c.json", coco())
    assert read(None, file).images == read("coco", file, tmp_path).images


@pytest.mark.data
@pytest.mark.skipif(not REAL.is_dir(), reason="the real COCO captions are not in ../shared/data")
def test_real_captions_of_2017() -> None:
    file = REAL / "coco" / "captions_val2017_subset.json"
    result = read("coco", file, REAL, check_files=False)
    assert len(result.images) == 4831
    assert sum(len(image.captions) for image in result.images) == 24169
    assert len(result.problems) == 0
    assert result.images[0].image_id == 37777
    assert result.images[0].path.name == "000000037777.jpg"


def entry(number: int, split: str, folder: str | None = "val2014") -> dict[str, Any]:
    texts = [f"A photo {number}.", "A dog ."]
    sentences = [{"raw": text, "tokens": text.lower().strip(" .").split()} for text in texts]
    name = f"COCO_val2014_{number:012d}.jpg"
    result = {"filename": name, "split": split, "imgid": 1, "sentences": sentences}
    return result if folder is None else {**result, "filepath": folder, "cocoid": number}


def karpathy() -> dict[str, Any]:
    splits = ["test", "train", "restval", "val", "train"]
    folders = ["val2014", "train2014", "val2014", "val2014", "train2014"]
    entries = map(entry, range(100, 105), splits, folders)
    return {"dataset": "coco", "images": list(entries)}


def test_the_splits_of_karpathy(tmp_path: Path) -> None:
    file = write_json(tmp_path / "dataset_coco.json", karpathy())
    (tmp_path / "train2014").mkdir()

    def images(split: str | None) -> Any:
        return read("karpathy", file, tmp_path, split, check_files=False).images

    numbers = {split: [each.image_id for each in images(split)] for split in ("train", "val", None)}
    assert numbers == {"train": [101, 102, 104], "val": [103], None: [100, 101, 102, 103, 104]}
    assert [each.image_id for each in images("restval")] == [102]
    (image,) = images("val")
    assert image.captions == ("A photo 103.", "A dog .")
    assert image.tokens == (("a", "photo", "103"), ("a", "dog"))
    train, rest, _ = images("train")
    assert train.path == tmp_path / "train2014" / "COCO_val2014_000000000101.jpg"
    assert rest.path == tmp_path / "COCO_val2014_000000000102.jpg"


def test_karpathys_files_of_flickr_have_neither_folder_nor_number(tmp_path: Path) -> None:
    value = {"dataset": "flickr8k", "images": [entry(5, "train", folder=None)]}
    file = write_json(tmp_path / "dataset_flickr8k.json", value)
    name = "COCO_val2014_000000000005.jpg"
    photos(tmp_path, name)
    (image,) = read("karpathy", file, tmp_path, "train").images
    assert (image.image_id, image.path) == (name, tmp_path / name)


def test_problems_of_karpathys_splits_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    value = karpathy()
    value["images"] += [entry(101, "train"), entry(100, "train"), entry(106, "train")]
    value["images"][-1]["sentences"] = []
    value["images"][1]["sentences"][0] = {"raw": " . ", "tokens": []}
    value["images"][4]["sentences"][0]["tokens"] = ["..."]
    photos(tmp_path, *(f"COCO_val2014_{number:012d}.jpg" for number in (101, 102)))
    file = write_json(tmp_path / "dataset_coco.json", value)
    images, problems = read("karpathy", file, tmp_path, "train", on_problem="skip")
    assert [image.image_id for image in images] == [101, 102]
    assert images[0].captions == ("A dog .",)
    several = {"empty caption": 2, "missing image": 2}
    assert counts(problems) == {**several, "duplicate image": 1, "image in two splits": 1}
    with pytest.raises(UserError, match=r"sentence 0 of image COCO_val2014_0+101.jpg \(record 1\)"):
        read("karpathy", file, tmp_path, "train")


GHOST = "2258277193_586949ec62.jpg.1"


def tokens(folder: Path, *lines: str) -> Path:
    file = folder / "Flickr8k.token.txt"
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    photos(folder, "a.jpg", "b.jpg")
    return file


def test_captions_of_flickr_are_grouped_by_image_in_the_order_of_the_file(tmp_path: Path) -> None:
    lines = ["b.jpg#0\tA dog .", "a.jpg#0\tA # cat\tsits", "", "b.jpg#1\t It\u2028runs "]
    images = read("flickr8k", tokens(tmp_path, *lines), tmp_path).images
    assert [(image.image_id, image.path, image.captions) for image in images] == [
        ("b.jpg", tmp_path / "b.jpg", ("A dog .", "It\u2028runs")),
        ("a.jpg", tmp_path / "a.jpg", ("A # cat\tsits",)),
    ]


@pytest.mark.parametrize(
    ("split", "name"),
    [
        ("train", "Flickr_8k.trainImages.txt"),
        ("val", "Flickr_8k.devImages.txt"),
        ("test", "Flickr_8k.testImages.txt"),
        ("val", "val.txt"),
        (None, "chosen.txt"),
    ],
)
def test_a_list_chooses_the_images_of_flickr_and_their_order(
    tmp_path: Path, split: str | None, name: str
) -> None:
    file = tokens(tmp_path, "b.jpg#0\tone", "a.jpg#0\ttwo", "absent.jpg#0\tthree")
    (tmp_path / name).write_text("a.jpg\r\n\nb.jpg\n")
    images = read("flickr8k", file, tmp_path, split or tmp_path / name).images
    assert [image.image_id for image in images] == ["a.jpg", "b.jpg"]


def test_problems_of_flickr_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    file = tokens(
        tmp_path,
        *("a.jpg#0\tone", "a.jpg#1\t ", "a.jpg#2 no tab", "a.jpg\tnone"),
        *("a.jpg#x\tletter", f"a.jpg#{'9' * 5000}\tmany digits", " #1\tno name", "b.jpg#0\tleft"),
    )
    chosen = tmp_path / "chosen.txt"
    chosen.write_text("a.jpg\na.jpg\nbare.jpg\n")
    photos(tmp_path, "bare.jpg")
    images, problems = read("flickr8k", file, tmp_path, chosen, on_problem="skip")
    assert [(image.image_id, image.captions) for image in images] == [("a.jpg", ("one",))]
    kinds = ["duplicate image", "empty caption", "image without captions"]
    assert counts(problems) == {**dict.fromkeys(kinds, 1), "ill-formed line": 5}
    file = tokens(tmp_path, "a.jpg#0\tone", *(f"{GHOST}#{n}\tghost" for n in range(5)))
    with pytest.raises(UserError, match=rf"1 missing image \(image {GHOST} \(line 2\) has no file"):
        read("flickr8k", file, tmp_path)


@pytest.mark.data
@pytest.mark.skipif(not REAL.is_dir(), reason="the real Flickr8k is not in ../shared/data")
@pytest.mark.parametrize(("split", "count"), [("train", 6000), ("val", 1000)])
def test_real_splits(split: str, count: int) -> None:
    folder = REAL / "flickr8k"
    result = read("flickr8k", folder / "Flickr8k.token.txt", folder / "images", split)
    assert len(result.images) == count
    assert {len(image.captions) for image in result.images} == {5}
    assert result.images[0].image_id == (folder / f"{split}.txt").read_text().split()[0]
    assert len(result.problems) == 0
