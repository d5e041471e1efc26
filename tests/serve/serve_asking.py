"""Requests for captions, and checks of their answers."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from serve_samples import photo_bytes

from captioner.caption import Caption

Files = list[tuple[str, tuple[str, bytes]]]


def files(*seeds: int) -> Files:
    return [("photo", (f"{seed}.png", photo_bytes(seed))) for seed in seeds]


def caption(client: httpx.Client, sent: Files, **fields: str) -> Any:
    answer = client.post("/api/caption", files=sent, data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["photos"]


def problem(answer: httpx.Response, status: int) -> str:
    """The sentence of a refusal, which reveals nothing about this machine."""
    assert answer.status_code == status, answer.text
    value = answer.json()
    assert list(value) == ["error"]
    sentence = str(value["error"])
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    assert "/" not in sentence.replace("application/json", "").replace("multipart/form-data", "")
    return sentence


def as_directly(photo: dict[str, Any], expected: Caption) -> None:
    (found, *_) = photo["captions"]
    assert found["caption"] == expected.text
    assert found["words"] == list(expected.words)
    assert found["log_probability"] == pytest.approx(expected.log_probability, abs=1e-3)
    np.testing.assert_allclose(found["maps"], expected.attention.numpy(), atol=2e-4)
