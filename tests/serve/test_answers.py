from __future__ import annotations

import json

import pytest
import torch
from fastapi import HTTPException

from captioner.caption import Caption
from captioner.serve.messages import CaptionAnswer, answer_problem, confidence_in_words


def made(confidence: float | None, others: tuple[Caption, ...] = ()) -> Caption:
    sure = None if confidence is None else confidence >= 0.25
    maps = torch.tensor([[[0.25, 0.75]], [[1 / 3, 2 / 3]]])
    words, terms = ("a", "dog"), (-1.0, -1.5)
    return Caption("a dog", words, -3.0, terms, maps, None, others, -2.0, confidence, sure)


@pytest.mark.parametrize(
    ("confidence", "said"),
    [
        (None, None),
        (0.01, "not sure: people would use hardly any of its words"),
        (0.24, "not sure: people would use about 2 in 10 of its words"),
        (0.25, "somewhat sure: people would use about 2 in 10 of its words"),
        (0.41, "fairly sure: people would use about 4 in 10 of its words"),
        (1.0, "quite sure: people would use nearly all of its words"),
    ],
)
def test_confidence_has_words(confidence: float | None, said: str | None) -> None:
    assert confidence_in_words(made(confidence)) == said


@pytest.mark.parametrize("confidence", [None, 0.5])
@pytest.mark.parametrize("maps", [True, False])
def test_a_caption_has_only_the_fields_that_are_known(confidence: float | None, maps: bool) -> None:
    answers = CaptionAnswer.all_of(made(confidence, (made(confidence), made(confidence))), maps)
    assert len(answers) == 3
    wanted = {"caption", "words", "score", "log_probability", "word_log_probabilities"}
    wanted |= {"maps"} if maps else set()
    if confidence is not None:
        wanted |= {"confidence", "sure", "confidence_in_words"}
    for answer in answers:
        assert set(answer.model_dump(exclude_none=True)) == wanted
    if maps:
        assert answers[0].maps == [[[0.25, 0.75]], [[0.33333, 0.66667]]]


def test_any_sentence_can_be_answered() -> None:
    answer = answer_problem(HTTPException(422, "\ud800 犬 </script>"))
    assert json.loads(bytes(answer.body)) == {"error": "? 犬 </script>"}
    assert answer.media_type == "application/json"
