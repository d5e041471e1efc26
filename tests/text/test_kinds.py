"""The kinds of content words, worked out by hand."""

import pytest

from captioner.text.kinds import KINDS, word_kinds

CASES = {
    "a man in a red shirt rides a bike": "person quality thing action thing",
    "two dogs run through the deep snow": "number thing action quality place",
    "a woman standing next to a bench in front of a building": "person action place place",
    "three players sit on top of the table": "number person action place place",
    "a boy goes down a slide": "person action place",
    "a black and white cat on a leather couch": "quality quality thing thing place",
    "12 horses standing outdoors": "number thing action place",
    "": "",
}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_kinds_by_hand(text: str, expected: str) -> None:
    kinds = word_kinds(text.split())
    assert len(kinds) == len(text.split())
    found = [kind for kind in kinds if kind is not None]
    assert found == expected.split()
    assert set(found) <= set(KINDS)
