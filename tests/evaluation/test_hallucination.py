from __future__ import annotations

from captioner.data.synonyms import Synonyms
from captioner.evaluation.hallucination import chair, hallucination_table

SYNONYMS = Synonyms(
    {
        ("dog",): "dog",
        ("puppy",): "dog",
        ("hot", "dog"): "hot dog",
        ("cat",): "cat",
        ("man",): "person",
        ("dog", "house"): None,
    }
)

CAPTIONS = [
    ["a", "dog", "and", "a", "puppy", "chase", "a", "cat"],  # dog is there, cat is not
    ["a", "man", "eats", "a", "hot", "dog"],  # person by a reference, hot dog by annotation
    ["a", "house"],  # names nothing; a dog is there
    ["a", "cat", "in", "a", "dog", "house"],  # nothing is there
]
REFERENCES = [
    [["a", "dog"], ["a", "puppy"]],
    [["the", "man"], ["food"]],
    [["a", "house"]],
    [["a", "dog", "house"]],
]
KNOWN = frozenset({"person", "cat", "dog", "hot dog"})
CATEGORIES = [["dog"], {"hot dog"}, frozenset({"dog", "kite"}), ()]


def test_worked_figures() -> None:
    found = chair(CAPTIONS, REFERENCES, CATEGORIES, SYNONYMS, KNOWN)
    assert found == {
        "CHAIR-i": 2 / 5,  # dog and puppy are one thing of the first caption
        "CHAIR-s": 2 / 4,
        "recall": 3 / 4,
        "mentions": 5,
        "hallucinated_mentions": 2,
        "present": 4,
        "hallucinating_captions": 2,
        "captions": 4,
        "most_hallucinated": {"cat": 2},
        "categories": 4,
        "dropped_categories": [],
    }
    assert hallucination_table(found).splitlines() == [
        "CHAIR-i       0.4000  2 of 5 mentions",
        "CHAIR-s       0.5000  2 of 4 captions",
        "recall        0.7500  3 of 4 things present",
        "hallucinated  cat 2",
    ]


def test_what_is_undefined_is_none() -> None:
    nothing = chair([["a", "house"]], [[["a", "house"]]], [[]], SYNONYMS, KNOWN)
    assert list(nothing.values())[:3] == [None, 0.0, None]
    assert hallucination_table(nothing).splitlines()[0].split()[:2] == ["CHAIR-i", "-"]
    wrong = chair([["a", "cat"]], [[["a", "house"]]], [[]], SYNONYMS, KNOWN)
    assert list(wrong.values())[:3] == [1.0, 1.0, None]


def test_the_most_hallucinated_come_first() -> None:
    captions = [["cat"], ["dog"], ["dog"], ["man"]]
    found = chair(captions, [[["house"]]] * 4, [[]] * 4, SYNONYMS, KNOWN)
    assert list(found["most_hallucinated"].items()) == [("dog", 2), ("cat", 1), ("person", 1)]


def test_what_could_not_be_annotated_does_not_count() -> None:
    captions = [["a", "dog", "and", "a", "cat"], ["a", "hot", "dog", "and", "a", "man"]]
    references = [[["a", "house"]], [["a", "hot", "dog"]]]
    found = chair(captions, references, [["dog"], []], SYNONYMS, frozenset({"dog", "person"}))
    # Cats are not annotated, and neither are hot dogs, which are no dogs for it.
    assert (found["mentions"], found["present"]) == (2, 1)
    assert found["most_hallucinated"] == {"person": 1}
    assert found["categories"] == 2
    assert found["dropped_categories"] == ["hot dog", "cat"]
    last = hallucination_table(found).splitlines()[-1]
    assert last.split()[:2] == ["categories", "2"]
    assert last.endswith("2 others are not in the annotations and do not count")
