from __future__ import annotations

from pathlib import Path

from captioner.data.examples import CaptionExample, caption_words, encode_captions
from captioner.data.records import CaptionedImage
from captioner.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "dog", "runs"])
WORDS = [[["a", "dog"]], [], [["a", "cat", "runs"], ["dog"]]]


def test_every_caption_is_an_example_with_the_row_of_its_image() -> None:
    encoded = encode_captions(WORDS, VOCABULARY)
    assert encoded.examples == [
        CaptionExample(0, [4, 5]),
        CaptionExample(2, [4, 3, 6]),
        CaptionExample(2, [5]),
    ]
    assert encoded.truncated == 0


def test_longer_captions_are_cut_and_counted() -> None:
    encoded = encode_captions(WORDS, VOCABULARY, maximum_length=1)
    assert [example.tokens for example in encoded.examples] == [[4], [4], [5]]
    assert encoded.truncated == 2
    assert encode_captions(WORDS, VOCABULARY, maximum_length=3).truncated == 0


def test_words_are_those_of_the_source_or_else_of_the_tokeniser() -> None:
    image = CaptionedImage("a", Path("a.jpg"), ("A Dog.",))
    assert caption_words(image) == [["a", "dog"]]
    image = CaptionedImage("a", Path("a.jpg"), ("A Dog.",), (("A", "Dog."),))
    assert caption_words(image) == [["A", "Dog."]]
