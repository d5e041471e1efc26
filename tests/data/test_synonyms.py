from pathlib import Path

import pytest

from captioner.data.instances import Synonyms, plurals, read_synonyms
from captioner.text.tokenizer import tokenize

COCO = read_synonyms()


def named(synonyms: Synonyms, caption: str) -> list[tuple[str, str]]:
    """What a caption names: the words and the category of each mention."""
    words = tokenize(caption)
    return [(" ".join(words[a:b]), category) for a, b, category in synonyms.mentions(words)]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_longest_phrase_wins_from_left_to_right(tmp_path: Path) -> None:
    lines = "# Animals\ndog: puppy, Bull  Dog   # and others\n\nhot dog:\n"
    lines += "-: hot dog stand, dog house\ndog: hound\n"
    synonyms = read_synonyms(write(tmp_path / "words.txt", lines))
    assert synonyms.categories == ("dog", "hot dog")
    words = ["two", "dogs", "and", "a", "hot", "dog", "by", "a", "hot", "dog", "stand"]
    assert synonyms.mentions(words) == [(1, 2, "dog"), (4, 6, "hot dog")]
    assert named(synonyms, "a bull dog in a dog house") == [("bull dog", "dog")]
    assert named(synonyms, "puppies and hounds") == [("puppies", "dog"), ("hounds", "dog")]
    assert named(synonyms, "hot hot dog hot") == [("hot dog", "hot dog")]


@pytest.mark.parametrize(
    ("text", "caption", "expected"),
    [
        ("dog: bull dog\n-: dog house", "bulldogs, a doghouse", [("bulldogs", "dog")]),
        (  # What is listed comes before what is derived.
            "fruit: orange, pears\ncolour: oranges\n-: pear",
            "orange oranges pear pears",
            [("orange", "fruit"), ("oranges", "colour"), ("pears", "fruit")],
        ),
        ("orange: tangerine\n-: orange", "an orange tangerine", [("tangerine", "orange")]),
    ],
)
def test_derived_phrases_and_names_that_are_taken_away(
    tmp_path: Path, text: str, caption: str, expected: list[tuple[str, str]]
) -> None:
    assert named(read_synonyms(write(tmp_path / "words.txt", text)), caption) == expected


def test_the_packaged_list_has_the_categories_of_coco() -> None:
    assert len(COCO.categories) == 80
    assert {"person", "fire hydrant", "sports ball", "hair drier", "tv"} <= set(COCO.categories)
    assert plurals("boy")[0] == "boys"
    assert plurals("potato")[1] == "potatoes"
    assert plurals("human") == ["humans", "humen"]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Two women and a fireman's children", ["person", "person", "person"]),
        ("A man eats a hot dog near a dog", ["person", "hot dog", "dog"]),
        ("A couple of zebras on a zebra crossing", ["zebra"]),
        ("A cat wearing a bow tie", ["cat", "tie"]),
        ("A television, a tv stand and a computer monitor", ["tv", "tv"]),
        ("A cellphone, a smart phone, a phone booth", ["cell phone", "cell phone"]),
        ("An orange cat eats oranges", ["cat", "orange"]),
        ("A glass table with glasses of wine", ["dining table", "wine glass"]),
        ("A man in glasses rides a motor bike in the bike lane", ["person", "motorcycle"]),
        ("A baseball player swings a bat at the ball", ["person", "baseball bat", "sports ball"]),
        ("An apple computer and an apple pie", []),
        ("Knives, mice, geese, sheep and buses", ["knife", "mouse", "bird", "sheep", "bus"]),
        ("A men's room with urinals", ["toilet"]),
    ],
)
def test_the_packaged_list_reads_captions(caption: str, expected: list[str]) -> None:
    assert [category for _, category in named(COCO, caption)] == expected
