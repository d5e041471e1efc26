"""Drawings by requests are those of the package."""

import io
import json
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from serve_samples import caption, far, files, make_captioner, photo_bytes

from captioner.render.animation import frames
from captioner.render.page import PageCaption, PageItem, html_page
from captioner.render.panels import panels


def drawn(client: httpx.Client, *seeds: int, **fields: Any) -> Any:
    """The text of a page, or the picture of another format."""
    answer = client.post("/api/overlay", files=files(*seeds), data=fields)
    assert answer.status_code == 200, answer.text
    kind = fields.get("format", "png")
    assert answer.headers["content-type"].startswith({"html": "text/"}.get(kind, "image/") + kind)
    disposition = f'attachment; filename="captions.{kind}"'
    assert answer.headers["content-disposition"] == disposition
    return answer.text if kind == "html" else Image.open(io.BytesIO(answer.content))


def photo(seed: int) -> Image.Image:
    return Image.open(io.BytesIO(photo_bytes(seed))).convert("RGB")


def region() -> tuple[float, float, float, float]:
    return make_captioner().preprocessing.region(120, 90)


@pytest.mark.parametrize("given", [True, False])
def test_a_picture_is_that_of_the_package(client: httpx.Client, given: bool) -> None:
    ((best, *_),) = (each["captions"] for each in caption(client, files(1)))
    fields = {"captions": json.dumps([best])} if given else {}
    picture = drawn(client, 1, strength="0.6", **fields)
    expected = panels(
        photo(1),
        best["words"],
        np.array(best["maps"]),
        region(),
        title="1.png",
        probabilities=np.exp(best["word_log_probabilities"]).tolist(),
        strength=0.6,
    )
    assert far(picture, expected) < 0.5
    assert far(picture, drawn(client, 1, strength="0.1", **fields)) > 2


def test_an_animation_has_a_frame_for_each_word(client: httpx.Client) -> None:
    ((best, *_),) = (each["captions"] for each in caption(client, files(2)))
    picture = drawn(client, 2, format="gif", captions=json.dumps([best]))
    assert picture.n_frames == len(best["words"])
    expected = frames(photo(2), best["words"], np.array(best["maps"]), region())
    for number, frame in enumerate(expected):
        picture.seek(number)
        assert far(picture, frame) < 6  # Of 256 colours.


def test_a_page_holds_all_photos_and_captions(client: httpx.Client) -> None:
    given = [each["captions"] for each in caption(client, files(1, 2), n_best="2")]
    given[0][0]["words"][0] = "</script><script>alert(1)</script>"
    page = drawn(client, 1, 2, format="html", captions=[json.dumps(each) for each in given])
    items = [
        PageItem.of(
            photo(seed),
            region(),
            [PageCaption(each["words"], np.array(each["maps"])) for each in of_photo],
            f"{seed}.png",
        )
        for seed, of_photo in zip((1, 2), given, strict=True)
    ]
    assert page == html_page(items)
    assert "<script>alert" not in page


def test_doubt_and_the_language_are_drawn(client: httpx.Client) -> None:
    def of(kind: str, **changed: Any) -> Any:
        good = {"words": ["Der", "Hund"], "maps": [[[0.5, 0.5]], [[0.0, 1.0]]]}
        return drawn(client, 0, format=kind, captions=json.dumps([{**good, **changed}]))

    page = of("html", sure=False, language="de")
    assert '<span class="doubt">nicht sicher</span>' in page
    assert 'class="words" dir="auto" lang="de"' in page
    for kind in ("png", "gif"):
        assert of(kind).height < of(kind, sure=False).height
