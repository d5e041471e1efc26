from __future__ import annotations

import json
from pathlib import Path

import pytest
from data_samples import read

from captioner.data.example import Problems
from captioner.data.table import read_splits
from captioner.errors import UserError

# A line separator of Unicode ends no line of a table.
ROWS = [("a.jpg", "A dog", "train"), ("b.jpg", "A\u2028cat", "val"), ("a.jpg", "A dog", "train")]


def table(folder: Path, name: str, content: str) -> Path:
    for photo in ("a.jpg", "b.jpg"):
        (folder / photo).touch()
    file = folder / name
    file.write_text(content, encoding="utf-8")
    return file


def as_csv() -> str:
    return "caption,note,image,split\n" + "".join(f"{c},,{i},{s}\n" for i, c, s in ROWS)


def as_jsonl() -> str:
    rows = [{"image": i, "caption": c, "split": s, "extra": [1]} for i, c, s in ROWS]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.mark.parametrize(("name", "content"), [("t.csv", as_csv()), ("t.JSONL", as_jsonl())])
def test_rows_are_grouped_by_image(tmp_path: Path, name: str, content: str) -> None:
    file = table(tmp_path, name, content)
    images = read("table", file).images
    assert [(image.image_id, image.path, image.captions) for image in images] == [
        ("a.jpg", tmp_path / "a.jpg", ("A dog", "A dog")),
        ("b.jpg", tmp_path / "b.jpg", ("A\u2028cat",)),
    ]
    assert [image.image_id for image in read("table", file, split="val").images] == ["b.jpg"]
    with pytest.raises(UserError, match="no split 'test', only train, val"):
        read("table", file, split="test")


def test_relative_paths_start_from_the_folder_of_images_where_one_is_given(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "c.jpg").touch()
    absolute = tmp_path / "a.jpg"
    file = table(tmp_path, "t.csv", f"image,caption\n./c.jpg,One\n{absolute},Two\nc.jpg,Three\n")
    images = read("table", file, photos).images
    assert [(image.image_id, image.path, image.captions) for image in images] == [
        ("c.jpg", photos / "c.jpg", ("One", "Three")),
        (str(absolute), absolute, ("Two",)),
    ]


def test_quoted_cells_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    text = 'image,caption\na.jpg,"A ""big"", red\ndog"\nb.jpg,\nb.jpg,A dog, and a cat\n'
    images, problems = read("table", table(tmp_path, "t.csv", text), on_problem="skip")
    assert images[0].captions == ('A "big", red\ndog',)
    assert problems.kinds == {
        "line with too many cells (put captions with ',' in quotes)": [
            "line 5 has 3 cells, the header 2"
        ],
        "empty caption": ["line 4 has no words"],
        "image without captions": ["image b.jpg (line 4) has no captions"],
    }


def test_problems_of_a_csv_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    text = "image,caption,split\na.jpg,One,train\na.jpg,Two\n,Three,train\na.jpg,Four,val\n"
    file = table(tmp_path, "t.csv", text + "\ngone.jpg,Five,\na.jpg,!,train\n")
    result = read("table", file, on_problem="skip")
    assert [(image.image_id, image.captions) for image in result.images] == [("a.jpg", ("One",))]
    assert result.problems.kinds == {
        "ill-formed line": [
            "line 3 has 2 cells, the header 3",
            'line 4 has no text in its "image"',
        ],
        "image in two splits": [
            "image a.jpg (line 5) is in split 'val', but was in 'train' before"
        ],
        "empty caption": ["line 8 has no words"],
        "missing image": [f"image gone.jpg (line 7) has no file {tmp_path / 'gone.jpg'}"],
    }
    with pytest.raises(UserError, match=r"t.csv has 2 ill-formed lines \(line 3 has 2 cells, the"):
        read("table", file)


def test_problems_of_a_jsonl_are_counted_and_skipped_or_refused(tmp_path: Path) -> None:
    lines = ['{"image": "a.jpg", "caption": "One"}', "", "{", "[]", '{"image": "a.jpg"}']
    lines += ['{"image": 3, "caption": "x"}', '{"image": "a.jpg", "caption": "x", "split": 1}']
    lines += ["[" * 100_000, "9" * 5000, '{"image": "a.jpg", "caption": "\\ud800 x"}']
    file = table(tmp_path, "t.jsonl", "\n".join(lines))
    result = read("table", file, on_problem="skip")
    assert [(image.image_id, image.captions) for image in result.images] == [("a.jpg", ("One",))]
    ill_formed = result.problems.kinds["ill-formed line"]
    assert [" ".join(sentence.split()[:2]) for sentence in ill_formed] == [
        f"line {number}" for number in range(3, 10)
    ]
    assert len(result.problems.kinds["caption of invalid Unicode"]) == 1
    with pytest.raises(
        UserError, match=r"7 ill-formed lines \(line 3 is not valid JSON; line 4 is not a"
    ):
        read("table", file)


@pytest.mark.parametrize(
    ("name", "header", "separator"),
    [
        ("t.csv", "photo,description", ","),
        ("t.csv", "ID;Filename;Text", ";"),
        ("t.tsv", "path\tcomment", "\t"),
        ("t.tsv", "file , Caption, title", ","),
        ("t.csv", "caption;note, with a comma;image", ";"),
    ],
)
def test_columns_and_their_separator_are_found_by_usual_names(
    tmp_path: Path, name: str, header: str, separator: str
) -> None:
    columns = [column.strip().lower() for column in header.split(separator)]
    values = {**dict.fromkeys(("photo", "filename", "path", "file", "image"), "a.jpg")}
    values |= dict.fromkeys(("description", "text", "comment", "caption"), "A dog")
    row = separator.join(values.get(column, "else") for column in columns)
    (image,) = read("table", table(tmp_path, name, f"{header}\n{row}\n")).images
    assert (image.image_id, image.captions) == ("a.jpg", ("A dog",))


def drawn(file: Path) -> dict[str, set[str]]:
    names = ["train", "val"]
    splits = read_splits(file, None, names, Problems())
    return {
        name: {str(image.image_id) for image in split}
        for name, split in zip(names, splits, strict=True)
    }


@pytest.mark.parametrize(("photos", "share"), [(5, 2), (8, 2), (100, 25), (600, 60)])
def test_validation_photos_of_a_table_without_splits_are_drawn(
    tmp_path: Path, photos: int, share: int
) -> None:
    names = [f"{number}.jpg" for number in range(photos)]
    for name in [*names, "more.jpg"]:
        (tmp_path / name).touch()
    rows = [f"{name},{caption}\n" for name in names for caption in ("One", "Two")]
    file = table(tmp_path, "t.csv", "image,caption\n" + "".join(rows))
    splits = drawn(file)
    assert len(splits["val"]) == share  # Two at least: CIDEr-D needs them.
    assert splits["train"] == set(names) - splits["val"]
    assert {image.image_id for image in read("table", file, split="val").images} == splits["val"]
    note = read("table", file, split="train").problems.note
    assert f"has no splits: {share} of its {photos} photos, drawn with seed 0" in note
    assert read("table", file).problems.note == ""
    with pytest.raises(UserError, match="no split 'test'"):
        read("table", file, split="test")
    # Other photos, another order: each keeps its split, but for one at most that is crowded out.
    file.write_text(
        "caption,image\nNew,more.jpg\n" + "".join(f"x,{name}\n" for name in names[::-1])
    )
    assert len(splits["val"] - drawn(file)["val"]) <= 1


def test_a_table_of_windows_with_separators_below_its_rows_is_read(tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday" / "a.jpg").touch()
    rows = "holiday\\a.jpg;A dog;\r\nholiday/a.jpg;A brown dog;\r\n;;\r\n\r\n ;;\r\n"
    path = table(tmp_path, "t.csv", f"\ufeffImage;Caption;Note\r\n{rows}")
    (image,) = read("table", path).images
    assert (image.image_id, image.captions) == ("holiday/a.jpg", ("A dog", "A brown dog"))


def test_a_photo_has_one_split_and_every_row_has_one_where_others_do(tmp_path: Path) -> None:
    content = "image,caption,split\na.jpg,a dog,train\nb/../a.jpg,a dog,val\nb.jpg,a cat,\n"
    path = table(tmp_path, "t.csv", content)
    images, problems = read("table", path, split="train", on_problem="skip")
    assert [(image.image_id, image.captions) for image in images] == [("a.jpg", ("a dog",))]
    assert problems.kinds == {
        "row without a split": ["line 4 has no split"],
        "image in two splits": [
            "image a.jpg (line 3) is in split 'val', but was in 'train' before"
        ],
    }
    assert len(read("table", path, on_problem="skip").images) == 2


def test_usual_names_in_jsonl_may_differ_by_line(tmp_path: Path) -> None:
    lines = ['{"Photo": "a.jpg", "text": "One"}', '{"file": "a.jpg", "comment": "Two"}', "{}"]
    images, problems = read(
        "table", table(tmp_path, "t.jsonl", "\n".join(lines)), on_problem="skip"
    )
    assert images[0].captions == ("One", "Two")
    assert problems.kinds == {"ill-formed line": ['line 3 has no text in its "image"']}
