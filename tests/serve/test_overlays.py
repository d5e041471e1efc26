from __future__ import annotations

import io
import json
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from serve_samples import caption, files, make_captioner, photo_bytes, problem

from captioner.render import PageCaption, PageItem, frames, html_page, panels


def captions(client: httpx.Client, *seeds: int, **fields: str) -> list[Any]:
    return [photo["captions"] for photo in caption(client, files(*seeds), **fields)]


def answered(client: httpx.Client, *seeds: int, **fields: Any) -> httpx.Response:
    return client.post("/api/overlay", files=files(*seeds), data=fields)


def drawn(client: httpx.Client, *seeds: int, **fields: Any) -> httpx.Response:
    answer = answered(client, *seeds, **fields)
    assert answer.status_code == 200, answer.text
    return answer


def photo(seed: int) -> Image.Image:
    return Image.open(io.BytesIO(photo_bytes(seed))).convert("RGB")


def region(seed: int) -> tuple[float, float, float, float]:
    picture = photo(seed)
    return make_captioner().preprocessing.region(picture.width, picture.height)


def far(one: Image.Image, other: Image.Image) -> float:
    """The mean difference of two pictures of one size, in steps of 256."""
    assert one.size == other.size
    values = [np.asarray(each.convert("RGB"), dtype=float) for each in (one, other)]
    return float(np.abs(values[0] - values[1]).mean())


@pytest.mark.parametrize("given", [True, False])
def test_a_picture_is_that_of_the_package(client: httpx.Client, given: bool) -> None:
    ((best, *_),) = captions(client, 1)
    fields = {"captions": json.dumps([best])} if given else {}
    answer = drawn(client, 1, strength="0.6", **fields)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["content-disposition"] == 'attachment; filename="captions.png"'
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
    assert answer.headers["content-type"] == "image/gif"
    expected = frames(photo(2), best["words"], np.array(best["maps"]), region(2))
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert getattr(picture, "n_frames", 1) == len(best["words"])
        for number, frame in enumerate(expected):
            picture.seek(number)
            assert far(picture, frame) < 6  # Of 256 colours.


def test_a_page_holds_all_photos_and_captions(client: httpx.Client) -> None:
    given = captions(client, 1, 2, n_best="2")
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


def test_doubt_and_the_language_are_drawn(client: httpx.Client) -> None:
    def of(kind: str, **changed: Any) -> httpx.Response:
        return drawn(client, 0, format=kind, captions=json.dumps([{**GOOD, **changed}]))

    page = of("html", words=["Der", "Hund"], sure=False, language="de").text
    assert '<span class="doubt">nicht sicher</span>' in page
    assert 'class="words" dir="auto" lang="de"' in page
    for kind in ("png", "gif"):
        heights = []
        for doubt in ({}, {"sure": False}):
            with Image.open(io.BytesIO(of(kind, **doubt).content)) as picture:
                heights.append(picture.height)
        assert heights[0] < heights[1]


def test_markup_in_captions_stays_text(client: httpx.Client) -> None:
    ((best, *_),) = captions(client, 1)
    best["words"][0] = "</script><script>alert(1)</script>"
    answer = drawn(client, 1, format="html", captions=json.dumps([best]))
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "<script>alert" not in answer.text


GOOD: dict[str, Any] = {"words": ["a", "dog"], "maps": [[[0.5, 0.5]], [[0.0, 1.0]]]}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({}, "captions[0] should be a list"),
        ([], "captions[0] should have at least 1 item"),
        ([GOOD] * 21, "captions[0] should have at most 20 items"),
        ([{**GOOD, "words": []}], "captions[0][0].words should have at least 1 item"),
        ([{**GOOD, "words": [""]}], "words[0] should have at least 1 character"),
        ([{**GOOD, "words": ["a", "x" * 101]}], "at most 100 characters"),
        ([{**GOOD, "words": ["a", "{reason}"], "maps": []}], "shape (T, rows, columns)"),
        ([{**GOOD, "maps": [[[0.5, 0.5]]]}], "2 words but 1 attention maps"),
        ([{**GOOD, "maps": [[[0.5, 0.5]], [[0.0, 0.5]]]}], "weights >= 0 that sum to 1"),
        ([{**GOOD, "maps": [[[0.5, 0.5]], [[-1.0, 2.0]]]}], "weights >= 0 that sum to 1"),
        ([{**GOOD, "maps": [[[0.5, 0.5]], [[1.0]]]}], "no array of numbers"),
        ([{**GOOD, "maps": [[[1 / 5000] * 5000]] * 2}], "4,096 cells"),
        ([GOOD, {**GOOD, "maps": [[[1]], [[1]]]}], "maps of one shape"),
        ([{**GOOD, "word_log_probabilities": [1, 1]}], "[0] 1 is not at most 0"),
        ([{**GOOD, "word_log_probabilities": [-1]}], "not as many"),
        ([{**GOOD, "word_log_probabilities": [-1, float("nan")]}], "should be a finite number"),
    ],
)
def test_captions_that_cannot_be_drawn_are_refused(
    client: httpx.Client, value: Any, named: str
) -> None:
    assert named in problem(answered(client, 0, captions=json.dumps(value)), 422)


@pytest.mark.parametrize(
    ("seeds", "fields", "named"),
    [
        ((0,), {"format": "svg"}, "format 'svg' is not one of png, gif, html"),
        ((0, 1), {"format": "gif"}, "a gif holds one"),
        ((0,), {"strength": "1.5"}, "strength '1.5' is not at most 1"),
        ((0, 1), {"format": "html", "captions": json.dumps([GOOD])}, "once for every photo"),
        ((0,), {"beam": "0"}, "beam '0' is not"),
        ((0,), {"maps": "true"}, "unknown field 'maps'"),
    ],
)
def test_a_wrong_field_of_a_drawing_is_named(
    client: httpx.Client, seeds: tuple[int, ...], fields: dict[str, str], named: str
) -> None:
    assert named in problem(answered(client, *seeds, **fields), 422)


@pytest.mark.parametrize("text", ["[[[", json.dumps([{**GOOD, "words": ["a", "\ud800"]}])])
def test_captions_that_are_no_json_are_refused(client: httpx.Client, text: str) -> None:
    assert "not JSON" in problem(answered(client, 0, captions=text), 400)


def test_a_photo_that_cannot_be_read_is_refused(client: httpx.Client) -> None:
    bad = [*files(0), ("photo", ("b.png", b"GIF89a"))]
    answer = client.post("/api/overlay", files=bad, data={"format": "html"})
    assert problem(answer, 422).startswith("b.png is")
