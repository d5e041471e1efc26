from __future__ import annotations

import json

import pytest
import torch

from captioner.caption import Caption
from captioner.caption.caption import NOT_FAMILIAR
from captioner.serve.answers import captions_of, confidence_in_words, json_answer
from captioner.serve.limits import Limits
from captioner.serve.openapi import description


def made(
    confidence: float | None, familiar: bool = True, others: tuple[Caption, ...] = ()
) -> Caption:
    sure = None if confidence is None else confidence >= 0.25
    maps = torch.tensor([[[0.25, 0.75]], [[1 / 3, 2 / 3]]])
    known = None if confidence is None else familiar
    words, terms = ("a", "dog"), (-1.0, -1.5)
    return Caption("a dog", words, -3.0, terms, maps, None, others, -2.0, confidence, sure, known)


@pytest.mark.parametrize(
    ("confidence", "familiar", "said"),
    [
        (None, True, None),
        (0.01, False, NOT_FAMILIAR),
        (0.6, False, "quite sure: people would use about 6 in 10 of its words"),
        (0.01, True, "not sure: people would use hardly any of its words"),
        (0.24, True, "not sure: people would use about 2 in 10 of its words"),
        (0.25, True, "somewhat sure: people would use about 2 in 10 of its words"),
        (0.41, True, "fairly sure: people would use about 4 in 10 of its words"),
        (1.0, True, "quite sure: people would use nearly all of its words"),
    ],
)
def test_confidence_has_words(confidence: float | None, familiar: bool, said: str | None) -> None:
    assert confidence_in_words(made(confidence, familiar)) == said


@pytest.mark.parametrize("confidence", [None, 0.5])
@pytest.mark.parametrize("maps", [True, False])
def test_a_caption_holds_what_is_described(confidence: float | None, maps: bool) -> None:
    captions = captions_of(made(confidence, others=(made(confidence), made(confidence))), maps)
    assert len(captions) == 3
    schemas = description(Limits(), "1")["components"]["schemas"]
    photo = schemas["Captions"]["properties"]["photos"]["items"]["anyOf"][0]
    schema = photo["properties"]["captions"]["items"]
    wanted = set(schema["required"]) | ({"maps"} if maps else set())
    if confidence is not None:
        wanted |= {"confidence", "sure", "familiar", "confidence_in_words"}
    for caption in captions:
        assert set(caption) == wanted <= set(schema["properties"])
    if maps:
        assert captions[0]["maps"] == [[[0.25, 0.75]], [[0.33333, 0.66667]]]


def test_any_text_can_be_answered_and_no_number_that_is_none() -> None:
    answer = json_answer({"text": "\ud800 犬 </script>"})
    assert json.loads(bytes(answer.body)) == {"text": "\ud800 犬 </script>"}
    assert answer.media_type == "application/json"
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_answer(float("nan"))
