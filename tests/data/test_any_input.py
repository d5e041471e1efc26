"""Every reader refuses an ill-formed file with one sentence that names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_samples import write_json
from hypothesis import given
from hypothesis import strategies as st

from captioner.data.example import Problems
from captioner.data.instances import read_instances
from captioner.data.readers import read_examples
from captioner.data.synonyms import read_synonyms
from captioner.errors import UserError

DOCUMENTS = {
    "coco": {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "annotations": [{"id": 1, "image_id": 1, "caption": "A dog"}],
    },
    "karpathy": {
        "images": [
            {
                "filename": "a.jpg",
                "filepath": "val2014",
                "cocoid": 1,
                "split": "train",
                "sentences": [{"raw": "A dog", "tokens": ["a", "dog"]}],
            }
        ]
    },
    "instances": {
        "categories": [{"id": 1, "name": "dog"}],
        "images": [{"id": 1, "width": 8, "height": 6, "file_name": "a.jpg"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}],
    },
}
OPTIONAL = {
    "coco": (),
    "karpathy": ("filepath", "cocoid", "tokens"),
    "instances": ("file_name",),
}


def spoiled(value: Any, optional: tuple[str, ...]) -> Iterator[Any]:
    """The document with each value in turn of another type or, if it is required, left out."""
    yield from (other for other in (None, True, "x", [], {}) if type(other) is not type(value))
    if isinstance(value, dict):
        for name, inner in value.items():
            others = {each: value[each] for each in value if each != name}
            if name not in optional:
                yield others
            yield from ({**others, name: other} for other in spoiled(inner, optional))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            for other in spoiled(inner, optional):
                yield [*value[:place], other, *value[place + 1 :]]


def read(kind: str, file: Path) -> object:
    if kind == "instances":
        return read_instances([file]).target(1, "dog")
    if kind == "synonyms":
        return read_synonyms(file)
    return read_examples(kind, file, None, None, Problems("skip"), check_files=False)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_value_of_another_type_is_refused(tmp_path: Path, kind: str) -> None:
    assert read(kind, write_json(tmp_path / "valid.json", DOCUMENTS[kind]))
    for document in spoiled(DOCUMENTS[kind], OPTIONAL[kind]):
        file = write_json(tmp_path / "spoiled.json", document)
        with pytest.raises(UserError) as caught:
            read(kind, file)
        assert str(file) in str(caught.value)


@pytest.mark.parametrize("kind", ["coco", "karpathy", "flickr8k"])
@pytest.mark.parametrize("content", ["[{}]", '{"images": [{}]}', "image,caption\na.jpg,A dog\n"])
def test_a_file_that_looks_like_another_format_is_refused_in_one_sentence(
    tmp_path: Path, kind: str, content: str
) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(
        UserError, match=f"; if it is not {kind}, name its format \\(--format"
    ) as error:
        read(kind, tmp_path / "file")
    assert "skip" not in str(error.value)


TEXTS = {
    "flickr8k": ("tokens.txt", "a.jpg#0\tA dog .\nb.jpg#1\tIt runs\n"),
    "table": ("t.csv", 'image,caption\na.jpg,"A dog"\nb.jpg,It runs\n'),
    "table of lines": ("t.jsonl", '{"image": "a.jpg", "caption": "A dog"}\n' * 2),
    "synonyms": ("words.txt", "dog: puppy, bull dog\n-: dog house # or kennel\n"),
}


@pytest.mark.parametrize("kind", TEXTS)
@given(st.data())
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
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
