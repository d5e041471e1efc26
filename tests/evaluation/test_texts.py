from __future__ import annotations

import pytest

from captioner.evaluation import texts as texts_module
from captioner.evaluation.texts import CaptionTexts


def test_each_caption_is_tokenised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def tokenizer(text: str) -> list[str]:
        seen.append(text)
        return text.split()

    monkeypatch.setattr(texts_module, "tokenize_unsplit", tokenizer)
    texts = CaptionTexts.of(["one cat", "one dog"], [["a cat"], ["a dog", "the dog"]], [2, 1], 1)
    assert sorted(seen) == ["a cat", "a dog", "one cat", "one dog", "the dog"]
    assert texts.reference_words == [[["a", "cat"]], [["a", "dog"], ["the", "dog"]]]
    others = texts.with_captions(["two cats", "two dogs"])
    assert others.words == [["two", "cats"], ["two", "dogs"]]
    assert others.reference_words is texts.reference_words
    assert others.images == [2, 1]
    assert others.references_without_caption == 1
