"""COCO's caption files, Karpathy's splits, Flickr's token files, parallel text; their problems."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from data_samples import captions, photos, read, write_json
from refusals import refuses

from captioner.data.example import Problems
from captioner.data.parallel import SentencePair, number_in_words, number_pairs, read_parallel
from captioner.data.readers import format_of, read_splits

NAMES = ["COCO_val2014_000000000042.jpg", "COCO_val2014_000000000007.jpg"]


def coco(names: list[str] = NAMES) -> dict[str, Any]:
    return {
        "info": {"year": 2014},
        "images": [{"id": 42, "file_name": names[0], "x": 4}, {"id": 7, "file_name": names[1]}],
        "annotations": [
            {"id": 1, "image_id": 7, "caption": "A dog.\n"},
            {"id": 2, "image_id": 42, "caption": "A cat."},
            {"id": 3, "image_id": 7, "caption": "The dog."},
        ],
    }


@pytest.mark.parametrize("year", [2014, 2017])
def test_the_layouts_of_coco_are_found_from_their_root(tmp_path: Path, year: int) -> None:
    names = NAMES if year == 2014 else [name.removeprefix("COCO_val2014_") for name in NAMES]
    file = write_json(tmp_path / "annotations" / f"captions_val{year}.json", coco(names))
    photos(tmp_path / "train2014")
    folder = photos(tmp_path / f"val{year}", *names)
    images = read("coco", file, tmp_path)[0]
    assert captions(images) == [(42, ("A cat.",)), (7, ("A dog.", "The dog."))]
    assert [image.source for image in images] == [folder / name for name in names]
    for folder in (tmp_path, file.parent):
        assert read("coco", folder, tmp_path, split=f"val{year}")[0] == images
    assert read("coco", file, tmp_path, split="validation")[0] == images


def test_a_folder_of_coco_has_a_file_a_split(tmp_path: Path) -> None:
    write_json(tmp_path / "captions_train.json", coco())
    value = coco()
    value["images"][1] = value["images"][0] | {"id": 8}
    value["annotations"][0]["image_id"] = value["annotations"][2]["image_id"] = 8
    write_json(tmp_path / "captions_val.json", value)
    splits = ["train", "val"]
    train, val = read_splits("coco", tmp_path, None, splits, Problems("skip"), check_files=False)
    assert [each.image_id for each in train] == [42, 7]
    assert [each.image_id for each in val] == [8]
    fault = r"1 duplicate image in another split \(image 42: train and val\)"
    refuses(fault, read_splits, "coco", tmp_path, None, splits, Problems(), check_files=False)


def test_the_photos_drawn_from_coco_stay_the_same(tmp_path: Path) -> None:
    names = [f"train2017/{number}.jpg" for number in range(20)]
    value = {"images": [], "annotations": []}
    for number, name in enumerate(names):
        value["images"].append({"id": number, "file_name": name})
        value["annotations"].append({"id": number, "image_id": number, "caption": "A cat."})
    file = write_json(tmp_path / "captions.json", value)
    (tmp_path / "train2017").mkdir()
    for splits in (["train", "val"], ["dev"]):
        *_, drawn = read_splits("coco", file, tmp_path, splits, Problems(), check_files=False)
        assert [each.image_id for each in drawn] == [1, 2, 11, 15, 16]


def test_problems_of_coco_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    value = coco()
    value["images"] += [value["images"][0], {"id": "42", "file_name": "8.jpg"}]
    value["images"] += [{"id": 8, "file_name": "8.jpg"}, {"id": 9, "file_name": "9.jpg"}]
    value["annotations"] += [
        {"id": 4, "image_id": 42, "caption": "  "},
        {"id": 5, "image_id": 1000, "caption": "Of nothing"},
        {"id": 6, "image_id": "9", "caption": "No file"},
        {"id": 7, "image_id": 42, "caption": "half \ud83d"},
        {"id": 8, "image_id": 42, "caption": "..."},
    ]
    file = write_json(tmp_path / "captions_val2014.json", value)
    folder = photos(tmp_path / "p", "8.jpg", *NAMES)
    images, problems = read("coco", file, folder, on_problem="skip")
    assert captions(images) == [(42, ("A cat.",)), (7, ("A dog.", "The dog."))]
    assert {kind: len(sentences) for kind, sentences in problems.kinds.items()} == {
        **{"duplicate image": 1, "empty caption": 2, "caption of invalid Unicode": 1},
        **{"caption without an image": 1, "image without captions": 1, "missing image": 1},
    }
    refuses(r"\(annotation 5 of image 1000\)", read, "coco", file, folder)


def test_a_format_is_known_by_its_fields(tmp_path: Path) -> None:
    known = {"coco": {"images": [], "annotations": []}, "karpathy": {"images": []}}
    for format, content in {**known, None: {"data": {"format": "coco"}}}.items():
        assert format_of(write_json(tmp_path / "c.json", content)) == format
    assert format_of(write_json(tmp_path / "c.yaml", {"images": []})) is None
    assert format_of(tmp_path) == "table"


def entry(number: int, split: str, folder: str | None = "val2014") -> dict[str, Any]:
    sentences = [{"raw": text, "tokens": ["x"]} for text in (f"A photo {number}.", "A dog .")]
    name = f"COCO_val2014_{number:012d}.jpg"
    result = {"filename": name, "split": split, "imgid": 1, "sentences": sentences}
    return result if folder is None else {**result, "filepath": folder, "cocoid": number}


def test_the_splits_of_karpathy(tmp_path: Path) -> None:
    splits = ["test", "train", "restval", "val", "train"]
    folders = ["val2014", "train2014", "val2014", "val2014", "train2014"]
    value = {"images": [*map(entry, range(100, 105), splits, folders)]}
    file = write_json(tmp_path / "dataset_coco.json", value)
    (tmp_path / "train2014").mkdir()

    def images(split: str | None) -> Any:
        return read("karpathy", file, tmp_path, split, check_files=False)[0]

    numbers = {split: [each.image_id for each in images(split)] for split in ("train", "val", None)}
    assert numbers == {"train": [101, 102, 104], "val": [103], None: [100, 101, 102, 103, 104]}
    assert [each.image_id for each in images("restval")] == [102]
    assert captions(images("val")) == [(103, ("A photo 103.", "A dog ."))]
    train, rest, _ = images("train")
    assert train.source == tmp_path / "train2014" / "COCO_val2014_000000000101.jpg"
    assert rest.source == tmp_path / "COCO_val2014_000000000102.jpg"
    # Flickr's have neither a folder nor a number.
    value = {"dataset": "flickr8k", "images": [entry(5, "train", folder=None)]}
    name = "COCO_val2014_000000000005.jpg"
    photos(tmp_path, name)
    (image,) = read(None, write_json(tmp_path / "d.json", value), split="train")[0]
    assert (image.image_id, image.source) == (name, tmp_path / name)


LISTS = ["Flickr_8k.trainImages.txt", "Flickr_8k.devImages.txt", "Flickr_8k.testImages.txt"]


def test_captions_of_flickr_are_in_the_order_of_the_file_or_of_a_list(tmp_path: Path) -> None:
    file = photos(tmp_path, "a.jpg", "b.jpg") / "Flickr8k.token.txt"
    lines = ["b.jpg#0\tA dog .", "a.jpg#0\tA # cat\tsits", "", "b.jpg#1\t It\u2028runs "]
    file.write_text("\n".join(lines), encoding="utf-8")
    images = read("flickr8k", file, tmp_path)[0]
    expected = {"b.jpg": ("A dog .", "It\u2028runs"), "a.jpg": ("A # cat\tsits",)}
    assert captions(images) == list(expected.items())
    assert images[0].source == tmp_path / "b.jpg"
    file.write_text("\n".join([*lines, "absent.jpg#0\tthree"]), encoding="utf-8")
    for split, name in (*zip(("train", "dev", "test"), LISTS, strict=True), ("val", "val.txt")):
        (tmp_path / name).write_text("a.jpg\r\n\nb.jpg\n")
        for chosen in (split, tmp_path / name):
            images = read("flickr8k", file, tmp_path, chosen)[0]
            assert [image.image_id for image in images] == ["a.jpg", "b.jpg"]
        (tmp_path / name).unlink()


def test_problems_are_counted_in_one_sentence_with_the_first_few() -> None:
    problems = Problems("skip", "table t.csv")
    for line in range(2, 14):
        problems.add("line without a split", f"line {line}")
    problems.add("missing image", "image \ud800 has no file")
    listed = "12 lines without a split (line 2; line 3; line 4; and 9 more), "
    listed += "1 missing image (image \\ud800 has no file)"
    assert problems.sentences == [f"table t.csv: left out {listed}"]


# Parallel text


def test_two_files_line_by_line(tmp_path: Path) -> None:
    english, german = tmp_path / "a.en", tmp_path / "a.de"
    english.write_bytes("\ufeffA dog.\r\n A\u2028man\x0b! \n".encode())
    german.write_bytes("Ein Hund.\nÄ".encode())
    expected = [("A dog.", "Ein Hund.", 1), ("A\u2028man\x0b!", "Ä", 2)]
    assert read_parallel(english, german)[0] == [SentencePair(*pair) for pair in expected]
    english.write_bytes(b"a\n\n")
    pairs, problems = read_parallel(english, german, on_problem="skip")
    assert [pair.line for pair in pairs] == [1]
    assert "left out 1 empty sentence" in problems.sentences[0]


def test_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert [pair.target for pair in read_parallel(path, path)[0]] == ["one", "two"]
    for damaged in (gzip.compress(b"one\ntwo\n" * 99)[:-12], b"plain"):
        path.write_bytes(damaged)
        refuses(r"text file .*a\.gz is not a whole gzip file", read_parallel, path, path)


NUMBERS = {20: "twenty", 117: "one hundred and seventeen", 4007: "four thousand and seven"}
NUMBERS[999_999] = "nine hundred and ninety nine thousand nine hundred and ninety nine"


def test_pairs_of_numbers() -> None:
    assert {number: number_in_words(number) for number in NUMBERS} == NUMBERS
    pairs = number_pairs(50, seed=3, largest=99)
    assert len({pair.source for pair in pairs}) == 50
    for pair in pairs:
        assert number_in_words(int(pair.target.replace(" ", ""))) == pair.source
    assert pairs == number_pairs(50, seed=3, largest=99) != number_pairs(50, seed=4, largest=99)
