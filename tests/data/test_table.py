"""Tables of photos and captions: columns, splits, wrong rows; descriptions in and beside photos."""

import json
import shutil
from pathlib import Path

import pytest
from data_samples import captions, photos, read
from refusals import refuses
from samples import own_packet, save_described, write_parquet, write_tar, xmp_packet

from captioner.data.example import Problems
from captioner.data.readers import format_of, read_splits
from captioner.errors import UserError
from captioner.library import Words

# A line separator of Unicode ends no line of a table.
ROWS = [("a.jpg", "A dog", "train"), ("b.jpg", "A\u2028cat", "val"), ("a.jpg", "A dog", "train")]


def table(folder: Path, name: str, content: str) -> Path:
    file = photos(folder, "a.jpg", "b.jpg") / name
    file.write_text(content, encoding="utf-8")
    return file


AS_CSV = "caption,note,image,split\n" + "".join(f"{c},,{i},{s}\n" for i, c, s in ROWS)
AS_JSON = [{"image": i, "caption": c, "split": s, "extra": [1]} for i, c, s in ROWS]
AS_JSONL = "\n".join(json.dumps(row, ensure_ascii=False) for row in AS_JSON)


@pytest.mark.parametrize(("name", "content"), [("t.csv", AS_CSV), ("t.JSONL", AS_JSONL)])
def test_rows_are_grouped_by_image(tmp_path: Path, name: str, content: str) -> None:
    file = table(tmp_path, name, content)
    images = read("table", file)[0]
    assert captions(images) == [("a.jpg", ("A dog", "A dog")), ("b.jpg", ("A\u2028cat",))]
    assert images[0].source == tmp_path / "a.jpg"
    assert [image.image_id for image in read("table", file, split="val")[0]] == ["b.jpg"]


def test_paths_start_from_the_folder_of_images_in_any_spelling(
    tmp_path: Path,
) -> None:
    accented = "Cafe\N{COMBINING ACUTE ACCENT}.jpg"
    folder, absolute = photos(tmp_path / "p", "c.JPG", accented), tmp_path / "a.jpg"
    rows = f"image,caption\n./c.JPG,One\n{absolute},Two\nc.JPG,Three\nCaf\xe9.jpg,4\nA.JPG,5\nc,6\n"
    file = table(tmp_path, "t.csv", rows)
    images = read("table", file, folder, on_problem="skip")[0]
    expected = [("c.JPG", ("One", "Three")), (str(absolute), ("Two",)), ("Caf\xe9.jpg", ("4",))]
    assert captions(images) == [*expected, ("c", ("6",))]
    assert [each.source for each in images] == [
        *(folder / "c.JPG", absolute, folder / accented, folder / "c.JPG")
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "ID;Filename;Text\n7;a.jpg;A dog"),
        ("t.tsv", "path\tcomment\na.jpg\tA dog"),
        ("t.csv", "caption;note, with a comma;image\nA dog;x;a.jpg"),
        # Of Windows, with rows of separators below.
        ("t.csv", "\ufeffImage , Caption,Note\r\n.\\a.jpg,A dog,\r\n,,\r\n\r\n ,,\r\n"),
        ("t.jsonl", '{"file": "a.jpg", "comment": "A dog", "title": "x"}'),
        ("t.json", '[{"Photo": "a.jpg", "text": "A dog"}]'),
    ],
)
def test_columns_and_separators_are_found_by_names(tmp_path: Path, name: str, text: str) -> None:
    assert captions(read(None, table(tmp_path, name, text))[0]) == [("a.jpg", ("A dog",))]


def test_problems_of_a_csv_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    lines = ["image,caption,split", 'a.jpg,"A ""big"", red\ndog",train', "a.jpg,Two"]
    lines += [",Three,train", "a.jpg,Four,val", "b.jpg,A dog, and a cat,train", ""]
    lines += ["gone.jpg,Five,", "b/../a.jpg,!,train", "lost.jpg,Six,val"]
    file = table(tmp_path, "t.csv", "\n".join(lines))
    images, problems = read("table", file, split="train", on_problem="skip")
    assert captions(images) == [("a.jpg", ('A "big", red\ndog',))]
    # Of both splits together.
    with pytest.raises(UserError, match=r"t.csv has 2 rows .*1 missing image \(.*, image lost.jpg"):
        read_splits(None, file, None, ["train", "val"])
    assert problems.kinds == {
        "row without as many cells as the header, by ',' without quotes": ["line 4", "line 7"],
        'row without text in its "image"': ["line 5"],
        "image without a split": ["image gone.jpg (line 9)"],
        "duplicate image in another split": ["image a.jpg (line 6): train and val"],
        "empty caption": ["line 10"],
    }


def test_problems_of_a_jsonl_are_counted_and_skipped(tmp_path: Path) -> None:
    lines = ['{"image": "a.jpg", "caption": "One"}', "", "{", "[]", '{"image": "a.jpg"}']
    lines += ['{"image": 3, "caption": "x"}', '{"image": "a.jpg", "caption": "x", "split": 1}']
    lines += ["[" * 100_000, '{"image": "a.jpg", "caption": "x", "caption": "y"}']
    lines += ['{"image": "a.jpg", "caption": "\\ud800 x"}']
    images, problems = read(None, table(tmp_path, "t.jsonl", "\n".join(lines)), on_problem="skip")
    assert captions(images) == [("a.jpg", ("One",))]
    assert problems.kinds == {
        "row without a valid JSON object": ["line 3", "line 4", "line 8", "line 9"],
        'row without text in its "caption"': ["line 5"],
        'row without text in its "image"': ["line 6"],
        'row without text in its "split"': ["line 7"],
        "caption of invalid Unicode": ["line 10"],
    }


def test_a_folder_has_texts_beside_photos_and_metadata(tmp_path: Path) -> None:
    photos(tmp_path, "d.jpg", "e.jpg")
    photos(tmp_path / "trip", "c.jpg")
    (tmp_path / "trip" / "c.txt").write_text("A cat\n\nOne cat\n")
    (tmp_path / "a.txt").write_text("A horse\n")
    (tmp_path / "d.txt").write_text(" \n")
    by_captioner = {"file_name": "d.jpg", "text": "x", "model": "default", "log_probability": -1}
    rows = [{"file_name": "a.jpg", "text": "A dog"}, {"file_name": "b.jpg", "text": "A bird"}]
    failed = {**by_captioner, "text": None, "error": "none"}
    lines = [json.dumps(row) for row in (*rows, by_captioner, failed, 3)]
    table(tmp_path, "metadata.jsonl", "\n".join(lines))
    images, problems = read(None, tmp_path, on_problem="skip")
    assert problems.kinds.pop("row without a valid JSON object") == ["line 5"]
    expected = {"a.jpg": ("A horse",), "b.jpg": ("A bird",), "trip/c.jpg": ("A cat", "One cat")}
    assert dict(captions(images)) == expected
    assert problems.sentences == [
        f"folder {tmp_path}: left out 1 photo that captioner could not caption (line 4 for one)",
        f"folder {tmp_path}: 5 photos, 2 with a text beside them, 1 in metadata.jsonl, 2 without; "
        "captions by captioner left out: 1",
    ]


@pytest.mark.parametrize(("count", "share"), [(5, 2), (8, 2), (100, 25), (600, 60)])
def test_validation_photos_are_drawn_without_splits(tmp_path: Path, count: int, share: int) -> None:
    def drawn(names: list[str]) -> list[set[str]]:
        file.write_text("image,caption\n" + "".join(f"{name},One\n" for name in names))
        splits = read_splits(None, file, None, ["train", "val"], problems, check_files=False)
        return [{str(image.image_id) for image in split} for split in splits]

    file, names = tmp_path / "t.csv", [f"{number}.jpg" for number in range(count)]
    problems = Problems()
    train, val = drawn(names)
    assert len(val) == share  # Two at least: CIDEr-D needs them.
    assert train == set(names) - val
    assert f"has no splits: {share} of its {count} photos, drawn with seed 0" in problems.notes[0]
    # Other photos, another order: each keeps its split, but for one at most that is crowded out.
    assert len(val - drawn(["more.jpg", *names[::-1]])[1]) <= 1


def test_captions_of_shards_are_lines_of_text_json_or_columns(tmp_path: Path) -> None:
    described = {"caption": "other", "split": "val", "key": "1", "image": "x"}
    write_tar(tmp_path / "s/0.tar", {"0.jpg": b"", "0.txt": b"A dog\n\nA cat\n", "note.txt": b""})
    members = {"1.json": json.dumps(described).encode(), "1.jpg": b"", "0.txt": b"A", "0.jpg": b""}
    write_tar(tmp_path / "s/1.tar", members | {"1.txt": b"A man"})
    images = read(None, tmp_path / "s/{0..1}.tar")[0]
    assert captions(images)[0] == ("s/0.tar/0.jpg", ("A dog", "A cat"))
    assert captions(images)[1:] == [("s/1.tar/1.jpg", ("A man",)), ("s/1.tar/0.jpg", ("A",))]
    assert str(images[2].source) == f"{tmp_path}/s/1.tar/0.jpg"
    texts, splits = [["A dog", "A cat"], ["A man"]], ["train", "val"]
    columns = {"image": [b"x", b"y"], "Captions": texts, "split": splits, "filename": ["p", "q"]}
    path = write_parquet(tmp_path / "s/p.parquet", columns)
    images = read(None, path, split="train")[0]
    assert captions(images) == [("s/p.parquet/0", ("A dog", "A cat"))]
    photos(tmp_path / "s", "a.jpg", "b.jpg")
    paths = ["a.jpg", "b.jpg", "gone.jpg"]
    path = write_parquet(tmp_path / "s/q.parquet", {"image": paths, "text": ["A dog", "A", "B"]})
    images, problems = read(None, path, on_problem="skip")
    assert captions(images) == [("a.jpg", ("A dog",)), ("b.jpg", ("A",))]
    assert images[0].source == tmp_path / "s/a.jpg"
    assert list(problems.kinds) == ["missing image"]


def test_problems_of_shards_are_counted_and_name_shard_and_member(tmp_path: Path) -> None:
    texts = {"0.txt": b"A dog", "1.json": b"[]", "2.txt": b"A d\xffg", "3.txt": b" \n"}
    write_tar(tmp_path / "s/0.tar", texts | {f"{number}.jpg": b"" for number in range(5)})
    pattern = tmp_path / "s/{0..1}.tar"
    images, problems = read(None, pattern, on_problem="skip")
    assert captions(images) == [("s/0.tar/0.jpg", ("A dog",))]
    member = f"{tmp_path}/s/0.tar/"
    assert problems.kinds == {
        "row without a valid JSON object": [f"the .json of {member}1.jpg"],
        'row without text in its "caption"': [f"{member}3.jpg", f"{member}4.jpg"],
        "unreadable shard": [f"{tmp_path}/s/1.tar does not exist, or is no file"],
        "caption of invalid Unicode": [f"{member}2.jpg"],
    }
    # Of one name in folders of one name, they are not mixed up.
    for number in range(2):
        write_tar(tmp_path / f"{number}/s/0.tar", {"0.jpg": b"", "0.txt": b"A dog"})
    sentence = rf"^table {tmp_path}/.* 1 duplicate image .*{tmp_path}/1/s/0.tar/0.jpg"
    refuses(sentence, read, None, tmp_path / "{0..1}/s/0.tar")


OWN = Words("a dog", [])


def packet(description: str) -> bytes:
    texts = {"x-default": description, "de": "Hund"}
    items = "".join(f"<rdf:li xml:lang='{tag}'>{text}</rdf:li>" for tag, text in texts.items())
    return xmp_packet(f"<dc:description><rdf:Alt>{items}</rdf:Alt></dc:description>")


def test_a_folder_has_descriptions_beside_and_inside_its_photos(tmp_path: Path) -> None:
    for number, xmp in enumerate([packet("Inside")] * 3 + [b""]):
        save_described(tmp_path / f"{number}.jpg", xmp, description="cof")
    (tmp_path / "0.txt").write_text("In a text\n")
    (tmp_path / "0.xmp").write_bytes(packet("In a sidecar"))
    (tmp_path / "1.jpg.xmp").write_bytes(packet("In a sidecar"))
    save_described(tmp_path / "4.jpg", own_packet(OWN))
    images, problems = read(None, tmp_path)
    expected = {"0.jpg": "In a text", "1.jpg": "In a sidecar", "2.jpg": "Inside"}
    assert {each.image_id: each.captions[0] for each in images} == expected
    counts = "5 photos, 1 with a text beside them, 1 with an XMP sidecar, 1 described inside, "
    counts += "2 without; captions by captioner left out: 1"
    assert problems.sentences == [f"folder {tmp_path}: {counts}"]
    (all_of_them,) = read_splits(None, tmp_path, None, [None], Problems(by_captioner=True))
    expected["4.jpg"] = "a dog"
    assert {each.image_id: each.captions[0] for each in all_of_them} == expected


def test_a_damaged_sidecar_is_a_problem_a_damaged_photo_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff")
    refuses(r"^folder .*: 1 photo, 1 without; captions are in photo", read, None, tmp_path)
    (tmp_path / "a.xmp").write_text("<x")
    refuses(r"1 unreadable description \(.*a\.xmp is not valid XML", read, None, tmp_path)


TWO = [("1.jpg", ("A dog, runs.", "One")), ("2.jpg", ("Two",))]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions.txt", 'image,caption\n1.jpg,"A dog, runs."\n1.jpg,One\n2.jpg,Two\n'),
        ("captions", "image\tcaption\n1.jpg\tA dog, runs.\n1.jpg\tOne\n2.jpg\tTwo\n"),
        ("results.csv", "image_name| comment\n1.jpg| A dog, runs.\n1.jpg| One\n2.jpg| Two\n"),
        ("map.json", '{"1.jpg": ["A dog, runs.", "One"], "2.jpg": "Two"}'),
        ("kohya.txt", '{"1": {"caption": ["A dog, runs.", "One"]}, "2": {"tags": "Two"}}'),
        ("tokens.txt", "1.jpg#0\tA dog, runs.\n1.jpg#1\tOne\n2.jpg#0\tTwo\n"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_captions_are_known_by_their_content(tmp_path, name, content, encoding) -> None:
    (tmp_path / name).write_text(content, encoding)
    is_tokens = name == "tokens.txt"
    photos(tmp_path if is_tokens else tmp_path / "Images", "1.jpg", "2.jpg")
    assert format_of(tmp_path / name) == ("flickr8k" if is_tokens else "table")
    (found,) = read_splits(None, tmp_path / name)
    assert [(Path(f"{each.source}").name, each.captions) for each in found] == TWO


def test_texts_have_several_names_and_leftovers_are_no_photos(tmp_path: Path) -> None:
    texts = {"1.txt": "One", "2.caption": "Two", "3.jpg.txt": "Three", "4.jpg.caption": "Four"}
    for name, text in texts.items():
        table(tmp_path, name, text)
    photos(tmp_path, "1.jpg", "2.jpg", "3.jpg", "4.jpg")
    photos(tmp_path / "@eaDir", "1.jpg")
    found = captions(read("table", tmp_path)[0])
    assert found == [(f"{n}.jpg", (text,)) for n, text in enumerate(texts.values(), start=1)]
    listed = table(tmp_path, "t.csv", "image,caption\n@eaDir/1.jpg,Thumb\n1.jpg,One\n")
    assert captions(read(None, listed)[0]) == [("1.jpg", ("One",))]


@pytest.mark.parametrize(
    "label",
    [
        "0 0.5 0.5 0.2 0.3\n\n12 0.1 1e-05 1 .3\n",
        "3,120,44,380,210",
        "Car 0.00 0 -1.57 614.24 181.78 727.31 284.77",
    ],
)
def test_texts_of_numbers_are_no_captions(tmp_path: Path, label: str) -> None:
    table(tmp_path, "a.txt", label)
    table(tmp_path, "b.txt", "3 dogs\n7\n")
    images, problems = read(None, tmp_path)
    assert captions(images) == [("b.jpg", ("3 dogs", "7"))]
    kinds = "1 with a text of numbers alone, 1 with a text beside them"
    assert problems.notes[0].endswith(kinds)
    write_parquet(tmp_path / "metadata.parquet", {"file_name": ["a.jpg"], "text": ["A cat"]})
    assert dict(captions(read(None, tmp_path)[0]))["a.jpg"] == ("A cat",)
    write_tar(tmp_path / "s.tar", {"a.jpg": b"x", "a.txt": label.encode()})
    refuses(r'row without text in its "caption" \(.*s.tar/a.jpg\)', read, None, tmp_path / "s.tar")


MOVED = ("1/a.jpg", "1/b.jpg", "2/c.jpg")
TOPS = ["/content/drive/x/", "C:\\Users\\Oma\\", r"\\\\nas\x\\"[1:], "photos/"]


@pytest.mark.parametrize("top", TOPS)
def test_photos_of_another_machine_lie_in_the_given_folder(tmp_path: Path, top: str) -> None:
    names = [top + name.replace("/", top[-1]) for name in MOVED]
    rows = "".join(f"{name},A dog\n" for name in names)
    file = table(tmp_path, "t.csv", f"image,caption\n{rows}")
    coco = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(names)],
        "annotations": [{"id": n, "image_id": n, "caption": "A dog"} for n in range(3)],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    folder = tmp_path / "photos"
    for source in (file, tmp_path / "coco.json"):
        folder.mkdir(exist_ok=True)
        refuses(r"3 photos exists, .* and none is in .*/photos by the", read, None, source, folder)
        for name in MOVED:  # Where no names are alike, the folders need not be.
            photos(folder, Path(name).name)
        images = read(None, source, folder)[0]
        assert [image.source for image in images] == [folder / name[2:] for name in MOVED]
        for name in MOVED:
            photos(folder / name[0], name[2:])
        images = read(None, source, folder)[0]
        assert [image.source for image in images] == [folder / name for name in MOVED]
        shutil.rmtree(folder)


def test_photos_of_another_machine_are_not_guessed(tmp_path: Path) -> None:
    rows = "".join(f"/content/{folder}/a.jpg,A dog\n" for folder in "xy")
    file = table(tmp_path, "t.csv", f"image,caption\n{rows}")
    refuses(r"none is in .* by the end of its path", read, None, file, tmp_path)
    photos(tmp_path / "x", "a.jpg")
    images, problems = read(None, file, tmp_path, on_problem="skip")
    assert [image.source for image in images] == [tmp_path / "x" / "a.jpg"]
    missing = f"{tmp_path}/y/a.jpg, image /content/y/a.jpg (line 3)"
    assert problems.kinds["missing image"] == [missing]


def test_folders_of_an_image_folder_are_splits(tmp_path: Path) -> None:
    for folder in ("train", "validation"):
        photos(tmp_path / folder, "1.jpg", "2.jpg")
        rows = [json.dumps({"file_name": f"{each}.jpg", "text": folder}) for each in (1, 2)]
        table(tmp_path / folder, "metadata.jsonl", "\n".join(rows))
    train, val = read_splits(None, tmp_path, splits=["train", "val"])
    assert captions(train) == [("train/1.jpg", ("train",)), ("train/2.jpg", ("train",))]
    assert captions(val) == [(f"validation/{n}.jpg", ("validation",)) for n in (1, 2)]
    (tmp_path / "validation").rename(tmp_path / "holidays")  # No split: they are drawn.
    drawn = read_splits(None, tmp_path, splits=["train", "val"])
    assert [len(each) for each in drawn] == [2, 2]
