"""Captions and translations as the JSON that is answered."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from captioner.caption import Caption
from captioner.serve.problems import Problem
from captioner.translate import Translation

_PLACES = 5
"""Decimal places of a weight of a map; 14x14 of them still add up to 1 within 0.001."""

_LEVELS = ((0.4, "somewhat sure"), (0.55, "fairly sure"), (math.inf, "quite sure"))
"""Confidences below which these words stand, where the model is sure."""


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A value as an answer, in ASCII, so that whatever text is in it can be sent.

    Raises `ValueError` for a number that JSON has no way to write.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, status, dict(headers or {}), "application/json")


def problem_answer(problem: Problem) -> Response:
    """The answer that says why a request is refused."""
    return json_answer({"error": problem.sentence}, problem.status, problem.headers)


def captions_of(caption: Caption, maps: bool) -> list[dict[str, Any]]:
    """A caption and its alternatives, best first; with their maps if asked for."""
    return [_caption(each, maps) for each in (caption, *caption.alternatives)]


def translations_of(translation: Translation) -> list[dict[str, Any]]:
    """A translation and its alternatives, best first."""
    found = []
    for each in (translation, *translation.alternatives):
        plain = each.as_dict()
        plain.pop("alternatives", None)
        found.append(plain)
    return found


def confidence_in_words(caption: Caption) -> str | None:
    """A caption's confidence as a person would say it; None where the model has none."""
    confidence = caption.confidence
    if confidence is None:
        return None
    if caption.doubt and not caption.familiar:
        return caption.doubt
    level = caption.doubt or next(words for below, words in _LEVELS if confidence < below)
    tenths = round(10 * confidence)
    share = {0: "hardly any", 10: "nearly all"}.get(tenths, f"about {tenths} in 10")
    return f"{level}: people would use {share} of its words"


def _caption(caption: Caption, maps: bool) -> dict[str, Any]:
    plain = caption.as_dict()
    plain.pop("alternatives", None)
    if caption.confidence is not None:
        plain["confidence_in_words"] = confidence_in_words(caption)
    if maps:
        plain["maps"] = [
            [[round(weight, _PLACES) for weight in row] for row in one]
            for one in caption.attention.tolist()
        ]
    return plain
