import io
import json
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from serve_samples import caption, far, files, make_captioner, photo_bytes, problem

from captioner.render.animation import frames
from captioner.render.page import PageCaption, PageItem, html_page
from captioner.render.panels import panels


def captions(client: httpx.Client, *seeds: int, **fields: str) -> list[Any]:
    return [photo["captions"] for photo in caption(client, files(*seeds), **fields)]


def drawn(client: httpx.Client, *seeds: int, **fields: Any) -> httpx.Response:
    answer = client.post("/api/overlay", files=files(*seeds), data=fields)
    assert answer.status_code == 200, answer.text
    kind = fields.get("format", "png")
    assert answer.headers["content-type"].startswith({"html": "text/"}.get(kind, "image/") + kind)
    disposition = f'attachment; filename="captions.{kind}"'
    assert answer.headers["content-disposition"] == disposition
    return answer


def photo(seed: int) -> Image.Image:
    return Image.open(io.BytesIO(photo_bytes(seed))).convert("RGB")


def region(seed: int) -> tuple[float, float, float, float]:
    picture = photo(seed)
    return make_captioner().preprocessing.region(picture.width, picture.height)


@pytest.mark.parametrize("given", [True, False])
def test_a_picture_is_that_of_the_package(client: httpx.Client, given: bool) -> None:
    ((best, *_),) = captions(client, 1)
    fields = {"captions": json.dumps([best])} if given else {}
    answer = drawn(client, 1, strength="0.6", **fields)
    expected = panels(
        photo(1),
        best["words"],
        np.array(best["maps"]),
        region(1),
        title="1.png",
        probabilities=np.exp(best["word_log_probabilities"]).tolist(),
        strength=0.6,
    )
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert far(picture, expected) < 0.5
        weaker = drawn(client, 1, strength="0.1", **fields).content
        with Image.open(io.BytesIO(weaker)) as other:
            assert far(picture, other) > 2


def test_an_animation_has_a_frame_for_each_word(client: httpx.Client) -> None:
    ((best, *_),) = captions(client, 2)
    answer = drawn(client, 2, format="gif", captions=json.dumps([best]))
    expected = frames(photo(2), best["words"], np.array(best["maps"]), region(2))
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert getattr(picture, "n_frames", 1) == len(best["words"])
        for number, frame in enumerate(expected):
            picture.seek(number)
            assert far(picture, frame) < 6  # Of 256 colours.


def test_a_page_holds_all_photos_and_captions(client: httpx.Client) -> None:
    given = captions(client, 1, 2, n_best="2")
    given[0][0]["words"][0] = "</script><script>alert(1)</script>"
    fields = {"format": "html", "captions": [json.dumps(each) for each in given]}
    answer = drawn(client, 1, 2, **fields)
    items = [
        PageItem.of(
            photo(seed),
            region(seed),
            [PageCaption(each["words"], np.array(each["maps"])) for each in of_photo],
            f"{seed}.png",
        )
        for seed, of_photo in zip((1, 2), given, strict=True)
    ]
    assert answer.text == html_page(items)
    assert "<script>alert" not in answer.text


def test_doubt_and_the_language_are_drawn(client: httpx.Client) -> None:
    def of(kind: str, **changed: Any) -> httpx.Response:
        good = {"words": ["Der", "Hund"], "maps": [[[0.5, 0.5]], [[0.0, 1.0]]]}
        return drawn(client, 0, format=kind, captions=json.dumps([{**good, **changed}]))

    page = of("html", sure=False, language="de").text
    assert '<span class="doubt">nicht sicher</span>' in page
    assert 'class="words" dir="auto" lang="de"' in page
    for kind in ("png", "gif"):
        heights = []
        for doubt in ({}, {"sure": False}):
            with Image.open(io.BytesIO(of(kind, **doubt).content)) as picture:
                heights.append(picture.height)
        assert heights[0] < heights[1]


def test_a_photo_that_cannot_be_read_is_refused(client: httpx.Client) -> None:
    bad = [*files(0), ("photo", ("b.png", b"GIF89a"))]
    answer = client.post("/api/overlay", files=bad, data={"format": "html"})
    assert problem(answer, 422).startswith("b.png is")
    answer = client.post("/api/overlay", files=files(0), data={"captions": "[[["})
    assert "not JSON" in problem(answer, 400)
