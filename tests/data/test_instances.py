from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import write_json
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask as reference
from pycocotools.coco import COCO
from refusals import refuses

from captioner.data.instances import CocoInstances, Synonyms, decode_run_lengths, read_synonyms
from captioner.text.tokenizer import tokenize

SYNONYMS = Synonyms({("puppy",): "dog", ("hot", "dog"): "hot dog", ("man",): "person"})
SQUARE = [1, 1, 4, 1, 4, 3, 1, 3]  # a polygon: columns 1 to 3, rows 1 to 2
# Run lengths of the crowd: down the columns of 6 rows; all of columns 6 and 7.
CROWD = {"size": [6, 8], "counts": [36, 12]}


def thing(number: int, image: int, category: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "image_id": image, "category_id": category, "iscrowd": 0, **fields}


CATEGORIES = {1: "person", 18: "dog", 58: "hot dog"}
DOCUMENT: dict[str, Any] = {
    "info": {"year": 2014},
    "categories": [{"id": n, "name": name, "supercategory": "x"} for n, name in CATEGORIES.items()],
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


def read(folder: Path, *annotations: dict[str, Any]) -> CocoInstances:
    value = DOCUMENT | ({"annotations": annotations} if annotations else {})
    return CocoInstances([write_json(folder / "instances_val2014.json", value)])


def cells(mask: Any) -> set[tuple[int, int]]:
    return {(int(row), int(column)) for row, column in zip(*np.nonzero(mask), strict=True)}


DOGS = {(row, column) for row in (1, 2) for column in (1, 2, 3)} | {(4, 5)}


def test_a_target_is_all_things_of_the_category(tmp_path: Path) -> None:
    as_text = {"image_id": "42", "id": "a"}
    things = [each | as_text | {"category_id": "18"} for each in DOCUMENT["annotations"]]
    assert read(tmp_path, *things).categories(42) == {"dog"}
    instances = read(tmp_path)
    name = "COCO_val2014_000000000042.jpg"
    for image_id in (42, "42", name, f"photos/{name}"):
        assert image_id in instances
        assert instances.categories(image_id) == {"person", "dog"}
    dogs, crowd = (instances.target(42, category) for category in ("dog", "person"))
    assert (dogs.size, dogs.boxes, cells(dogs.mask)) == ((8, 6), (), DOGS)
    assert cells(crowd.mask) == {(row, column) for row in range(6) for column in (6, 7)}
    assert instances.categories(7) == frozenset()
    assert instances.target(42, "hot dog") is instances.target(7, "dog") is None
    for unknown in (43, "043", f"{name}.jpg", ""):
        assert unknown not in instances
        refuses(rf"^image {unknown!r} is not in instance file", instances.target, unknown, "dog")


def test_masks_are_those_of_pycocotools(tmp_path: Path) -> None:
    polygons = [[0.5, 0.7, 6.2, 1.1, 3.3, 5.4], [4, 4, 7.5, 4.2, 7.9, 5.9, 4.1, 5.5]]
    uncompressed = {"size": [6, 8], "counts": [3, 4, 10, 2, 29]}
    mask = np.random.default_rng(0).integers(0, 2, (6, 8), dtype=np.uint8)
    compressed = reference.encode(np.asfortranarray(mask))
    compressed["counts"] = compressed["counts"].decode("ascii")
    for segmentation in (polygons, uncompressed, compressed):
        target = read(tmp_path, thing(1, 42, 18, segmentation=segmentation)).target(42, "dog")
        expected = COCO(tmp_path / "instances_val2014.json")
        assert np.array_equal(target.mask, expected.annToMask(expected.anns[1]) == 1)


@pytest.mark.parametrize("segmentation", [None, [], [[2, 2, 2.01, 2, 2.01, 2.01]]])
def test_a_thing_without_an_outline_counts_with_its_box(tmp_path: Path, segmentation: Any) -> None:
    boxed = thing(1, 42, 18, bbox=[5, 3, 2, 1.5], segmentation=segmentation)
    alone = read(tmp_path, boxed).target(42, "dog")
    assert (alone.boxes, alone.mask) == (((5, 3, 7, 4.5),), None)
    mixed = read(tmp_path, boxed, thing(2, 42, 18, segmentation=[SQUARE])).target(42, "dog")
    assert (mixed.boxes, len(cells(mixed.mask))) == (((5, 3, 7, 4.5),), 6)
    assert read(tmp_path, {**boxed, "bbox": [2, 2, 3, -1]}).target(42, "dog") is None


def test_words_of_a_mention_have_the_things_of_their_category(tmp_path: Path) -> None:
    grounding = read(tmp_path).grounding(SYNONYMS)
    words = ["a", "man", "and", "his", "puppy", "eat", "a", "hot", "dog"]
    with_hot_dog = thing(4, 7, 58, segmentation=[SQUARE])
    targets = read(tmp_path, with_hot_dog).grounding(SYNONYMS).targets(7, words)
    assert [target is None for target in targets] == [True] * 7 + [False] * 2
    targets = grounding.targets(42, words)
    named = [target is not None for target in targets]
    assert named == [word in ("man", "puppy") for word in words]
    assert cells(targets[4].mask) == DOGS
    assert grounding.targets(43, words) == grounding.targets(7, words) == [None] * 9
    assert 7 in grounding.images  # Looked at by people, though nothing is in it.
    assert grounding.source == f"instance file {tmp_path / 'instances_val2014.json'}"
    words_of_both = Synonyms({("bench",): "bench", ("dog",): "dog", ("men",): "person"})
    assert read(tmp_path).known_categories(words_of_both) == {"dog", "person"}
    animals = Synonyms({("dogs",): "animal"})
    refuses("list has none of the categories of instance", read(tmp_path).grounding, animals)


def test_several_files_are_one(tmp_path: Path) -> None:
    images = [{"id": 9, "file_name": "COCO_train2014_9.jpg", "width": 8, "height": 6}]
    second = DOCUMENT | {"images": images, "annotations": [thing(1, 9, 58, segmentation=[SQUARE])]}
    named = {"val2014.json": DOCUMENT, "train2014.json": second}
    instances = CocoInstances([write_json(tmp_path / name, named[name]) for name in named])
    assert instances.categories(42) == {"person", "dog"}
    assert instances.categories("COCO_train2014_9.jpg") == {"hot dog"}
    refuses(r"image 1 is not in .*val2014.json and .*train2014.json", instances.categories, 1)


@given(
    st.text(st.characters(min_codepoint=40, max_codepoint=130), max_size=12)
    | st.lists(st.integers() | st.floats() | st.none(), max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_any_counts_are_decoded_or_refused(counts: object, height: int, width: int) -> None:
    mask = decode_run_lengths(counts, height, width)
    assert mask is None or mask.shape == (height, width)
    for damaged in (None, [3, -1, 4], [2.5, 3.5], [2, 3], [2**40], "", "5 5", "ooooo", "23"):
        assert decode_run_lengths(damaged, 2, 3) is None


# Word lists

PACKAGED = read_synonyms()


def named(synonyms: Synonyms, caption: str) -> list[tuple[str, str]]:
    """What a caption names: the words and the category of each mention."""
    words = tokenize(caption)
    return [(" ".join(words[a:b]), category) for a, b, category in synonyms.mentions(words)]


ANIMALS = "# Animals\ndog: puppy, Bull  Dog   # and others\n\nhot dog:\n"
ANIMALS += "-: hot dog stand, dog house\ndog: hound\n"
FRUIT = "fruit: orange, pears\ncolour: oranges\n-: pear"


@pytest.mark.parametrize(
    ("text", "caption", "expected"),
    [
        (ANIMALS, "dogs, a hot dog by a hot dog stand", {"dogs": "dog", "hot dog": "hot dog"}),
        (ANIMALS, "a bull dog in a dog house", {"bull dog": "dog"}),
        (ANIMALS, "puppies and hounds", {"puppies": "dog", "hounds": "dog"}),
        (ANIMALS, "hot hot dog hot", {"hot dog": "hot dog"}),
        ("dog: bull dog\n-: dog house", "bulldogs, a doghouse", {"bulldogs": "dog"}),
        # What is listed comes before what is derived.
        (FRUIT, "orange pear pears", {"orange": "fruit", "pears": "fruit"}),
        (FRUIT, "oranges", {"oranges": "colour"}),
        ("orange: tangerine\n-: orange", "an orange tangerine", {"tangerine": "orange"}),
    ],
)
def test_the_longest_phrase_wins_from_left_to_right(tmp_path, text, caption, expected) -> None:
    (tmp_path / "words.txt").write_text(text)
    assert named(read_synonyms(tmp_path / "words.txt"), caption) == [*expected.items()]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Two women, boys and a fireman's children", ["person"] * 4),
        ("A man eats a hot dog near a dog", ["person", "hot dog", "dog"]),
        ("A couple of zebras on a zebra crossing", ["zebra"]),
        ("A television, a tv stand, a smart phone, a phone booth", ["tv", "cell phone"]),
        ("An orange cat eats oranges", ["cat", "orange"]),
        ("A baseball player swings a bat at the ball", ["person", "baseball bat", "sports ball"]),
        ("An apple computer and an apple pie", []),
        ("Knives, mice, geese, sheep and buses", ["knife", "mouse", "bird", "sheep", "bus"]),
    ],
)
def test_the_packaged_list_reads_captions(caption: str, expected: list[str]) -> None:
    assert len(PACKAGED.categories) == 80
    assert [category for _, category in named(PACKAGED, caption)] == expected
