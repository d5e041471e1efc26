from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.evaluation.texts import CaptionTexts


def test_each_caption_is_tokenised_once() -> None:
    seen: list[str] = []

    def tokenizer(text: str) -> list[str]:
        seen.append(text)
        return text.split()

    references = {1: ["a dog", "the dog"], 2: ["a cat"], 3: ["not scored"]}
    words = [[["a", "cat"]], [["a", "dog"], ["the", "dog"]]]
    texts = CaptionTexts.of({2: "one cat", 1: "one dog"}, references, tokenizer)
    assert sorted(seen) == ["a cat", "a dog", "one cat", "one dog", "the dog"]
    assert texts.reference_words == words
    others = texts.with_captions(["two cats", "two dogs"])
    assert others.words == [["two", "cats"], ["two", "dogs"]]
    assert others.reference_words is texts.reference_words
    assert others.images == [2, 1]
    assert len(others) == 2
    assert others.references_without_caption == 1


@pytest.mark.parametrize("nothing", [None, 3, "a dog", []])
def test_an_image_without_a_list_of_references_is_named(nothing: object) -> None:
    with pytest.raises(UserError, match="image 0 has no list of reference captions"):
        CaptionTexts.of(["a dog", "a cat"], [nothing, ["a cat"]])  # type: ignore[list-item]
    with pytest.raises(UserError, match="image 'x' has no list of reference captions"):
        CaptionTexts.of({"x": "a dog"}, {"x": nothing})  # type: ignore[dict-item]


def test_lists_leave_no_image_without_a_caption() -> None:
    texts = CaptionTexts.of(["a dog"], [["the dog", "a dog"]])
    assert texts.images == [0]
    assert texts.references_without_caption == 0
    with pytest.raises(UserError, match="1 captions but references for 2 images"):
        CaptionTexts.of(["a dog"], [["the dog"], ["a cat"]])
