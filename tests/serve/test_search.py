from __future__ import annotations

from typing import Any

import httpx
import pytest
from serve_asking import caption, files

from captioner.decoding import SearchOptions, TranslationSearch
from captioner.decoding.options import SAMPLING


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CaptionForm", SearchOptions),
        ("OverlayForm", SearchOptions),
        ("TranslationRequest", TranslationSearch),
    ],
)
def test_options_are_described_as_they_are_declared(
    client: httpx.Client, name: str, kind: type[SearchOptions]
) -> None:
    schema: dict[str, Any] = client.get("/api/openapi.json").json()["components"]["schemas"][name]
    for option, declared in kind.model_json_schema()["properties"].items():
        declared.pop("default")  # The model has its own.
        described = schema["properties"][option]
        # FastAPI writes limits as floats, in which the largest seed is rounded.
        assert described.pop("maximum", None) == pytest.approx(declared.pop("maximum", None))
        assert described == declared
        assert option not in schema["required"]


def test_options_left_out_are_those_of_the_model(client: httpx.Client) -> None:
    own = client.get("/api/model").json()["captioner"]["search"]
    given = {name: str(own[name]) for name in own if name not in SAMPLING}
    assert caption(client, files(0), **given) == caption(client, files(0))


def test_of_a_field_given_twice_the_last_counts(client: httpx.Client) -> None:
    answer = client.post("/api/caption", files=files(0), data={"n_best": ["1", "2"]})
    assert len(answer.json()["photos"][0]["captions"]) == 2
