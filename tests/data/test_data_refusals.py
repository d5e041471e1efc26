"""An ill-formed file is refused in one sentence that names it, and no text crashes a reader."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from samples import Patch

from captioner.data import shapes
from captioner.data.example import Problems
from captioner.data.instances import CocoInstances, read_synonyms
from captioner.data.parallel import read_parallel
from captioner.data.readers import read_splits
from captioner.data.shapes import ShapesConfig, generate_example
from captioner.errors import UserError

SENTENCES = [{"raw": "A dog"}]
NUMBERED = {"filepath": "val2014", "cocoid": 1}
DOCUMENTS: dict[str, Any] = {
    "coco": {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "annotations": [{"id": 1, "image_id": 1, "caption": "A dog"}],
    },
    "karpathy": {
        "images": [{"filename": "a.jpg", "split": "train", "sentences": SENTENCES, **NUMBERED}]
    },
    "instances": {
        "categories": [{"id": 1, "name": "dog"}],
        "images": [{"id": 1, "width": 8, "height": 6, "file_name": "a.jpg"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}],
    },
}


def read(kind: str | None, file: Path, split: str | None = None) -> object:
    if kind == "instances":
        return CocoInstances([file]).target(1, "dog")
    if kind == "synonyms":
        return read_synonyms(file)
    return read_splits(kind, file, None, [split], Problems("skip"), check_files=False)


TEXTS = {
    "flickr8k": ("tokens.txt", "a.jpg#0\tA dog .\nb.jpg#1\tIt runs\n"),
    "table": ("t.csv", 'image,caption\na.jpg,"A dog"\nb.jpg,It runs\n'),
    "table of lines": ("t.jsonl", '{"image": "a.jpg", "caption": "A dog"}\n' * 2),
    "synonyms": ("words.txt", "dog: puppy, bull dog\n-: dog house # or kennel\n"),
}


@pytest.mark.parametrize("kind", TEXTS)
@given(st.data())
def test_any_text_is_read_or_refused(tmp_path_factory, kind, data) -> None:
    name, valid = TEXTS[kind]
    start, end = (data.draw(st.integers(0, len(valid))) for _ in range(2))
    inserted = data.draw(st.text() | st.text(st.sampled_from(valid)))
    file = tmp_path_factory.getbasetemp() / name
    file.write_bytes((valid[:start] + inserted + valid[end:]).encode("utf-8", "replace"))
    try:
        outcome = f"{file}: {read(kind.split()[0], file)}"
    except UserError as error:
        outcome = str(error)
    assert str(file) in outcome


def changed(kind: str, place: str, **values: Any) -> str:
    """The JSON of a document with other values in the first record of `place`."""
    (record,) = DOCUMENTS[kind][place]
    return json.dumps({**DOCUMENTS[kind], place: [{**record, **values}]})


COCO, KARPATHY, FLICKR = json.dumps(DOCUMENTS["coco"]), json.dumps(DOCUMENTS["karpathy"]), "a#0\tA"
EMPTY = changed("karpathy", "images", sentences=[{"raw": " . "}])
UNSAID = changed("karpathy", "images", sentences=[{}])
DAMAGED = f"a.jpg#0\t \na.jpg#2 no tab\na.jpg\tnone\na#x\tx\na.jpg#{'9' * 5000}\tx\n #1\tx"
OUTLINE = "annotation 1 in instance .* neither polygons, .*nor run lengths that"
TWICE = "image,Caption,caption\na.jpg,One,Two\n"
ADDRESSES = "url,text\nhttps://example.org/1.jpg,One\n"
THREE = "image,caption\n0.jpg,One\n1.jpg,Two\n2.jpg,Three\n"


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("coco", "c.json", changed("coco", "annotations", caption=3), r"annotations\[0\]\.caption"),
        ("karpathy", "k.json", UNSAID, r"sentences\[0\]\.raw"),
        ("instances", "i.json", changed("instances", "annotations", bbox=[0]), r"\[0\]\.bbox"),
        ("coco val", "captions_train2017.json", COCO, "of the split 'train2017', not 'val'$"),
        ("coco v", "captions_val2017.json", COCO, "of the split 'val2017', not 'v'$"),
        ("coco vall", "c.json", COCO, "in split 'vall'; its splits: none$"),
        ("coco", "folder", None, "the split to read must be named"),
        ("coco val", "folder", None, "annotations/captions_val.json does not exist$"),
        (" ", "t.json", "{", r"t\.json is not valid JSON \(.*\)$"),
        (" ", "c.json", COCO.replace('"caption"', '"text"'), r"annotations\[0\]"),
        (" ", "t.json", "null", r"json is not recognised as captions: they are a folder"),
        (" ", "tokens.txt", "a.jpg A", r"is not recognised as captions: they are a folder"),
        ("karpathy", "k.json", EMPTY, r"1 empty caption \(sentence 0 of image a.jpg"),
        ("karpathy dev", "k.json", KARPATHY, r"has no photo .* in split 'val'; its splits: train$"),
        ("flickr8k", "none.txt", None, r"token file .*none.txt does not exist"),
        ("flickr8k val", "tokens.txt", FLICKR, r"split list .*val.txt does not exist$"),
        ("flickr8k", "tokens.txt", DAMAGED, r"5 rows without NAME#NUM.*\(line 2; .* 1 empty ca"),
        ("table", "t.csv", "", r't.csv has no column "image" \('),
        (
            "table",
            "t.csv",
            "image,words\n",
            r't.csv has no column "caption" \(caption, .*first line',
        ),
        ("table", "t.csv", 'image,caption\na.jpg,"x', r"is not valid CSV \(line 2"),
        ("table val", "t.csv", "image,caption\n", "t.csv has no photo with a caption$"),
        ("table test", "t.csv", THREE, "in split 'test'; its splits: none"),
        ("table val", "t.csv", THREE, r"has 3 photos and no splits; training draws .* from 4"),
        ("table", "t.json", "{}", "is not a list of rows"),
        ("table", "t.csv", ADDRESSES, "address, such as https://example.org/1.jpg; photos are"),
        ("table", "t.csv", TWICE, r't\.csv has two columns "caption"; rename one'),
        ("instances", "i.json", changed("instances", "images", height=0), "equal to 1, found 0"),
        ("instances", "i.json", changed("instances", "annotations", image_id=3), "of image 3"),
        ("instances", "i.json", changed("instances", "annotations", category_id=3), "category 3"),
        *(
            ("instances", "i.json", changed("instances", "annotations", segmentation=each), OUTLINE)
            for each in (
                *([[1, 1, 4, 1]], [[1, 1, 4, 1, 4, "3"]], [3], [[1, 1, 1e8, 1, 4, 3]]),
                *({"size": [8, 6], "counts": [48]}, {"size": [6, 8], "counts": "5"}),
            )
        ),
        ("synonyms", "s.txt", "dog puppy", "line 1 is not a category, a colon and phrases"),
        ("synonyms", "s.txt", "# nothing\n: puppy", "line 2 is not a category, a colon"),
        ("synonyms", "s.txt", "-: dog house", "has no category"),
    ],
)
def test_ill_formed_files_are_refused_by_name(tmp_path, kind, name, content, message) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    elif "." not in name:
        file.mkdir()
    format, *split = kind.split() or [None]
    with pytest.raises(UserError, match=message) as caught:
        read(format, file, *split)
    assert str(file.parent) in str(caught.value)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"a\nb\n", b"1\n", r"a\.en has 2 lines and .*a\.de 1: line by line"),
        (b"a\nb\n", b"1\n\xff2\n", r"a\.de is not UTF-8 text \(line 2, byte 2\): save it as"),
        (b"a\n\nc\n", b"1\n2\n3\n", r"1 empty sentence \(.*a\.en, line 2\) \(--set data"),
        (b"", b"", r"there is no sentence in .*a\.en and .*a\.de"),
        (None, b"", r"text file .*a\.en does not exist"),
    ],
)
def test_sentences_without_a_translation_are_refused(tmp_path, source, target, message) -> None:
    (tmp_path / "a.de").write_bytes(target)
    if source is not None:
        (tmp_path / "a.en").write_bytes(source)
    refuses(message, read_parallel, tmp_path / "a.en", tmp_path / "a.de")


def test_values_that_make_no_pictures_are_refused_by_name(monkeypatch: Patch) -> None:
    for field, value in (("image_size", 8), ("objects", (3, 2)), ("object_size", (0.2, 0.9))):
        refuses(f"^{field} ", ShapesConfig, **{field: value})  # type: ignore[arg-type)
    monkeypatch.setattr(shapes, "_ATTEMPTS", 10)
    crowded = ShapesConfig(objects=(4, 4), object_size=(0.5, 0.5))
    refuses("no room", generate_example, 0, seed=0, config=crowded)
