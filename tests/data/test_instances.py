from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import write_json
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pycocotools import mask as reference
from pycocotools.coco import COCO

from captioner.data.instances import CocoInstances, decode_run_lengths, read_instances
from captioner.data.synonyms import Synonyms
from captioner.errors import UserError

SYNONYMS = Synonyms(
    {("dog",): "dog", ("puppy",): "dog", ("hot", "dog"): "hot dog", ("man",): "person"}
)
SQUARE = [1, 1, 4, 1, 4, 3, 1, 3]  # a polygon: columns 1 to 3, rows 1 to 2
# Run lengths of the crowd: down the columns of 6 rows; all of columns 6 and 7.
CROWD = {"size": [6, 8], "counts": [36, 12]}


def document() -> dict[str, Any]:
    return {
        "info": {"year": 2014},
        "categories": [
            {"id": 1, "name": "person", "supercategory": "person"},
            {"id": 18, "name": "dog", "supercategory": "animal"},
            {"id": 58, "name": "hot dog", "supercategory": "food"},
        ],
        "images": [
            {"id": 42, "file_name": "COCO_val2014_000000000042.jpg", "width": 8, "height": 6},
            {"id": 7, "file_name": "COCO_val2014_000000000007.jpg", "width": 5, "height": 5},
        ],
        "annotations": [
            thing(1, 42, 18, segmentation=[SQUARE], bbox=[1, 1, 3, 2]),
            thing(2, 42, 18, segmentation=[[5, 4, 6, 4, 6, 5, 5, 5]], bbox=[5, 4, 1, 1]),
            thing(3, 42, 1, segmentation=CROWD, iscrowd=1, bbox=[6, 0, 2, 6]),
        ],
    }


def thing(number: int, image: int, category: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "image_id": image, "category_id": category, "iscrowd": 0, **fields}


def read(folder: Path, *annotations: dict[str, Any]) -> CocoInstances:
    value = document()
    if annotations:
        value["annotations"] = list(annotations)
    return read_instances([write_json(folder / "instances_val2014.json", value)])


def cells(mask: Any) -> set[tuple[int, int]]:
    return {(int(row), int(column)) for row, column in zip(*np.nonzero(mask), strict=True)}


DOGS = {(row, column) for row in (1, 2) for column in (1, 2, 3)} | {(4, 5)}


def test_the_categories_of_an_image(tmp_path: Path) -> None:
    instances = read(tmp_path)
    assert instances.all_categories == ("person", "dog", "hot dog")
    for image_id in (42, "42", "COCO_val2014_000000000042.jpg", "p/COCO_val2014_000000000042.jpg"):
        assert instances.categories(image_id) == {"person", "dog"}
    assert instances.categories(7) == frozenset()
    assert 42 in instances
    assert 43 not in instances


@pytest.mark.parametrize("image_id", [43, "43", "COCO_val2014_000000000043.jpg", "", "042"])
def test_an_unknown_image_is_named(tmp_path: Path, image_id: int | str) -> None:
    instances = read(tmp_path)
    with pytest.raises(UserError, match=rf"^image {image_id!r} is not in instance file .*val2014"):
        instances.categories(image_id)
    with pytest.raises(UserError, match="is not in instance file"):
        instances.target(image_id, "dog")


def test_a_target_is_all_things_of_the_category(tmp_path: Path) -> None:
    instances = read(tmp_path)
    dogs = instances.target(42, "dog")
    assert dogs.size == (8, 6)
    assert dogs.boxes == ()
    assert cells(dogs.mask) == DOGS
    crowd = instances.target(42, "person")
    assert cells(crowd.mask) == {(row, column) for row in range(6) for column in (6, 7)}
    assert instances.target(42, "hot dog") is None
    assert instances.target(7, "dog") is None


def test_masks_are_those_of_pycocotools(tmp_path: Path) -> None:
    polygons = [[0.5, 0.7, 6.2, 1.1, 3.3, 5.4], [4, 4, 7.5, 4.2, 7.9, 5.9, 4.1, 5.5]]
    uncompressed = {"size": [6, 8], "counts": [3, 4, 10, 2, 29]}
    mask = np.random.default_rng(0).integers(0, 2, (6, 8), dtype=np.uint8)
    compressed = reference.encode(np.asfortranarray(mask))
    compressed["counts"] = compressed["counts"].decode("ascii")
    for segmentation in (polygons, uncompressed, compressed):
        value = document()
        value["annotations"] = [thing(1, 42, 18, segmentation=segmentation)]
        file = write_json(tmp_path / "instances.json", value)
        expected = COCO(file)
        target = read_instances([file]).target(42, "dog")
        assert np.array_equal(target.mask, expected.annToMask(expected.anns[1]) == 1)


@pytest.mark.parametrize("fields", [{}, {"segmentation": []}, {"segmentation": None}])
def test_a_thing_without_an_outline_counts_with_its_box(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    alone = read(tmp_path, thing(1, 42, 18, bbox=[5, 3, 2, 1.5], **fields)).target(42, "dog")
    assert (alone.boxes, alone.mask) == (((5, 3, 7, 4.5),), None)
    instances = read(
        tmp_path,
        thing(1, 42, 18, segmentation=[SQUARE]),
        thing(2, 42, 18, bbox=[5, 3, 2, 2], **fields),
    )
    mixed = instances.target(42, "dog")
    assert mixed.boxes == ((5, 3, 7, 5),)
    assert len(cells(mixed.mask)) == 6


def test_a_thing_too_thin_for_a_pixel_counts_with_its_box(tmp_path: Path) -> None:
    thin = [2, 2, 2.01, 2, 2.01, 2.01]
    instances = read(tmp_path, thing(1, 42, 18, segmentation=[thin], bbox=[2, 2, 0.25, 0.5]))
    target = instances.target(42, "dog")
    assert target.boxes == ((2, 2, 2.25, 2.5),)
    for bbox in ([2, 2, 0, 0], [2, 2, -1, -1], [2, 2, 3, -1]):
        nothing = read(tmp_path, thing(1, 42, 18, segmentation=[thin], bbox=bbox))
        assert nothing.target(42, "dog") is None
        assert nothing.categories(42) == {"dog"}


def test_words_of_a_mention_have_the_things_of_their_category(tmp_path: Path) -> None:
    grounding = read(tmp_path).grounding(SYNONYMS)
    words = ["a", "man", "and", "his", "puppy", "eat", "a", "hot", "dog"]
    targets = grounding.targets(42, words)
    assert [target is not None for target in targets] == [
        word in ("man", "puppy") for word in words
    ]
    puppy = targets[4]
    assert cells(puppy.mask) == DOGS
    assert grounding.targets(43, words) == [None] * 9
    assert grounding.targets("COCO_val2014_000000000007.jpg", words) == [None] * 9
    assert grounding.targets(42, []) == []


def test_all_words_of_a_phrase_have_its_target(tmp_path: Path) -> None:
    grounding = read(tmp_path, thing(1, 42, 58, segmentation=[SQUARE])).grounding(SYNONYMS)
    targets = grounding.targets(42, ["hot", "dog", "dog"])
    assert [target is None for target in targets] == [False, False, True]


def test_a_grounding_knows_its_images_and_its_file(tmp_path: Path) -> None:
    grounding = read(tmp_path).grounding(SYNONYMS)
    assert 42 in grounding
    assert 7 in grounding  # Looked at by people, though nothing is in it.
    assert "val2014/COCO_val2014_000000000042.jpg" in grounding
    assert 43 not in grounding
    assert str(grounding) == f"instance file {tmp_path / 'instances_val2014.json'}"


def test_the_categories_of_both_file_and_word_list(tmp_path: Path) -> None:
    instances = read(tmp_path)
    words = Synonyms({("bench",): "bench", ("dog",): "dog", ("men",): "person"})
    assert instances.known_categories(words) == {"dog", "person"}
    for read_with in (instances.grounding, instances.known_categories):
        with pytest.raises(UserError, match="the word list has none of the categories of instance"):
            read_with(Synonyms({("dogs",): "animal"}))


def test_several_files_are_one(tmp_path: Path) -> None:
    second = document()
    second["images"] = [{"id": 9, "file_name": "COCO_train2014_9.jpg", "width": 8, "height": 6}]
    second["annotations"] = [thing(1, 9, 58, segmentation=[SQUARE])]
    files = [
        write_json(tmp_path / "instances_val2014.json", document()),
        write_json(tmp_path / "instances_train2014.json", second),
    ]
    instances = read_instances(files)
    assert instances.categories(42) == {"person", "dog"}
    assert instances.categories("COCO_train2014_9.jpg") == {"hot dog"}
    target = instances.target(9, "hot dog")
    assert len(cells(target.mask)) == 6
    with pytest.raises(UserError, match=r"image 1 is not in .*val2014.json and .*train2014.json"):
        instances.categories(1)
    second["categories"][0]["name"] = "human"
    write_json(files[1], second)
    with pytest.raises(UserError, match="have different categories"):
        read_instances(files)


def broken(where: str, index: int, name: str, value: Any) -> Any:
    result = document()
    result[where][index][name] = value
    return result


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (broken("images", 0, "height", 0), r"images\[0\].height 0 is not at least 1"),
        (broken("images", 0, "height", 10**9), "is not at most 20,000"),
        (broken("annotations", 2, "image_id", 3), r"annotations\[2\] of .* is of image 3"),
        (broken("annotations", 1, "category_id", 3), r"annotations\[1\] of .* is of category 3"),
    ],
)
def test_ill_formed_files_are_refused_by_name(tmp_path: Path, value: Any, message: str) -> None:
    file = write_json(tmp_path / "instances.json", value)
    with pytest.raises(UserError, match=message) as caught:
        read_instances([file])
    assert str(file) in str(caught.value)


def test_a_thing_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\[0\] of .* has neither a segmentation nor a bbox"):
        read(tmp_path, thing(1, 42, 18, segmentation=[]))


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        ([[1, 1, 4, 1]], "is not three or more pairs of numbers"),
        ([[1, 1, 4, 1, 4, 3, 1]], "is not three or more pairs of numbers"),
        ([[1, 1, 4, 1, 4, "3"]], "is not three or more pairs of numbers"),
        ([[1, 1, 4, 1, 4, float("nan")]], "is not three or more pairs of numbers"),
        ([3], "is not three or more pairs of numbers"),
        ([[1, 1, 1e8, 1, 4, 3]], "numbers in its image"),
        ([[1, 1, 4, -7, 4, 3]], "numbers in its image"),
        ("x", "is neither a list nor an object"),
        ({"size": [8, 6], "counts": [48]}, r"is of size \[8, 6\], not \[6, 8\] as its image"),
        ({"counts": [48]}, "is of size None"),
        ({"size": [6, 8], "counts": "5"}, "has no runs that add up to the 48 pixels"),
    ],
)
def test_outlines_that_cannot_be_drawn_are_refused_when_asked_for(
    tmp_path: Path, segmentation: Any, message: str
) -> None:
    instances = read(tmp_path, thing(11, 42, 18, segmentation=segmentation))
    assert instances.categories(42) == {"dog"}
    with pytest.raises(UserError, match=message) as caught:
        instances.target(42, "dog")
    assert "annotation 11 in instance file" in str(caught.value)


def test_runs_go_down_the_columns_and_begin_outside() -> None:
    mask = decode_run_lengths([1, 2, 3], 2, 3, "it")
    assert mask.tolist() == [[False, True, False], [True, False, False]]
    assert decode_run_lengths([0, 6], 2, 3, "it").all()


@given(
    arrays.arrays(
        np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40)), elements={"max_value": 1}
    )
)
def test_strings_are_unpacked_as_coco_packs_them(mask: np.ndarray) -> None:
    packed = reference.encode(np.asfortranarray(mask))
    found = decode_run_lengths(packed["counts"].decode("ascii"), *packed["size"], "it")
    assert found.dtype == np.bool_
    assert np.array_equal(found, mask == 1)


def test_long_runs_are_unpacked() -> None:
    mask = np.zeros((1500, 1100), np.uint8)
    mask[700:, 3:900] = 1
    packed = reference.encode(np.asfortranarray(mask))
    found = decode_run_lengths(packed["counts"].decode("ascii"), *packed["size"], "it")
    assert np.array_equal(found, mask == 1)


@pytest.mark.parametrize(
    "counts",
    [None, [1, None], [3, -1, 4], [2.5, 3.5], [2, 3], [2**40], "", "5 5", "ooooo", "23"],
)
def test_damaged_counts_are_refused(counts: object) -> None:
    with pytest.raises(UserError, match="it has no runs that add up to the 6 pixels of its image"):
        decode_run_lengths(counts, 2, 3, "it")


@given(
    st.text(max_size=12)
    | st.text(st.characters(min_codepoint=46, max_codepoint=113), max_size=12)
    | st.lists(st.integers() | st.floats() | st.none(), max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_any_counts_are_decoded_or_refused(counts: object, height: int, width: int) -> None:
    try:
        mask = decode_run_lengths(counts, height, width, "it")
    except UserError:
        return
    assert mask.shape == (height, width)
