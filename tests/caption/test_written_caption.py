from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from captioner.caption import Caption
from captioner.caption.written_caption import sentence
from captioner.text.tokenizer import tokenize

CAPTION = Caption("a dog", ("a", "dog"), -1.5, (-0.25, -1.0), torch.zeros(2, 4, 4))


def test_the_plain_form_is_json_without_maps() -> None:
    assert json.loads(json.dumps(CAPTION.as_dict())) == {
        "caption": "a dog",
        "words": ["a", "dog"],
        "log_probability": -1.5,
        "word_log_probabilities": [-0.25, -1.0],
    }


def test_alternatives_are_in_the_plain_form() -> None:
    both = replace(CAPTION, alternatives=(CAPTION,))
    assert both.as_dict()["alternatives"] == [CAPTION.as_dict()]


def test_captions_can_be_compared() -> None:
    assert replace(CAPTION, attention=torch.ones(2, 4, 4)) == CAPTION
    assert CAPTION in [replace(CAPTION, text="a cat"), CAPTION]
    assert replace(CAPTION, log_probability=-2.0) != CAPTION


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("a man 's hat", "a man's hat"),
        ("a dog does n't run", "a dog doesn't run"),
        ("they 're happy and we 've won", "they're happy and we've won"),
        ("a red dog", "a red dog"),
        ("", ""),
    ],
)
def test_a_caption_reads_as_it_is_written(words: str, written: str) -> None:
    assert sentence(words.split()) == written
    assert tokenize(written) == words.split()


def test_what_could_not_be_told_apart_again_is_not_attached() -> None:
    assert sentence(["'s", "hat"]) == "'s hat"
    assert sentence(["dog", "'s", "'s"]) == "dog's 's"
