"""Captions, drawings and translations by requests are those of the package."""

import base64
import io
import json
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image, ImageOps
from samples import photo as picture
from samples import photo_bytes
from serve_samples import (
    SENTENCES,
    as_directly,
    asking,
    caption,
    far,
    files,
    make_captioner,
    make_translator,
    problem,
)

from captioner.decoding.options import SAMPLING
from captioner.render.overlay import MappedCaption
from captioner.render.page import PageItem, html_page
from captioner.render.panels import frames
from captioner.serve import UNDETERMINED
from captioner.serve.service import Service


def test_captions_are_those_of_the_captioner(client: httpx.Client) -> None:
    sent = files(0, 1, 2)
    direct = make_captioner().caption([content for _, (_, content) in sent])
    photos = caption(client, sent)
    assert [photo["name"] for photo in photos] == ["0.png", "1.png", "2.png"]
    for photo, expected in zip(photos, direct, strict=True):
        as_directly(photo, expected)
        assert (photo["width"], photo["height"]) == (120, 90)
        assert photo["region"] == pytest.approx(expected.region)


def test_the_search_is_the_one_asked_for_and_a_seed_repeats_samples(client: httpx.Client) -> None:
    model = make_captioner()
    (photo,) = caption(client, files(3), beam="4", n_best="2", maximum_length="4", maps="false")
    search: Any = {"beam": 4, "n_best": 2, "minimum_length": 2, "maximum_length": 4}
    (direct,) = model.caption([photo_bytes(3)], **search)
    texts = [each["caption"] for each in photo["captions"]]
    assert texts == [direct.text, direct.alternatives[0].text]
    assert "maps" not in photo["captions"][0]
    (steered,) = caption(client, files(3), begin="the dog", without="man,water")
    assert steered["captions"][0]["words"][:2] == ["the", "dog"]
    assert set(steered["captions"][0]["keywords"]) == {"dog"}
    answer = client.post("/api/caption", files=files(3), data={"without": "man,hovercraft"})
    assert answer.json()["note"].endswith("words that the model lacks: hovercraft")
    (wide,) = caption(client, files(3), n_best="5")  # More than the model's own beam of three.
    assert len(wide["captions"]) == 5
    own = client.get("/api/model").json()["captioner"]["search"]
    given = {name: str(own[name]) for name in own if name not in SAMPLING}
    assert caption(client, files(0), **given) == caption(client, files(0))
    asked = {"sample": "true", "temperature": "3", "seed": "7", "n_best": "2"}
    (found,) = caption(client, files(0), **asked)
    search = {"sample": True, "temperature": 3, "seed": 7, "n_best": 2}
    as_directly(found, model.caption(photo_bytes(0), **search))


def test_captions_are_translated_and_keep_the_original(client: httpx.Client) -> None:
    plain = caption(client, files(0, 1), n_best="2")
    german = caption(client, files(0, 1), n_best="2", language="de")
    assert len(german[0]["captions"]) == 2
    for found, original in zip(german[0]["captions"], plain[0]["captions"], strict=True):
        assert found["language"] == "de"
        assert found["original"] == {name: original[name] for name in original if name != "maps"}
        assert found["caption"] == " ".join(found["words"]) != original["caption"]
        assert np.array(found["maps"]).shape == (len(found["words"]), 4, 4)
        assert np.array(found["maps"]).sum(axis=(1, 2)) == pytest.approx(1, abs=0.001)
    assert "language" not in plain[1]["captions"][0]
    assert caption(client, files(0, 1), n_best="2", language="DE") == german
    assert caption(client, files(0, 1), n_best="2", language="EN") == plain


def test_a_large_photo_on_its_side_is_upright_and_has_its_own_pixels(client: httpx.Client) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # To be turned by a quarter.
    content = photo_bytes(0, (2400, 2200), "JPEG", exif=exif.tobytes())
    sent = [("photo", ("large.jpg", content))]
    (found,) = caption(client, sent)
    assert (found["width"], found["height"]) == (2200, 2400)
    region = make_captioner().preprocessing.region(2200, 2400)
    assert found["region"] == pytest.approx(region)
    (shown,) = caption(client, sent, preview="true")
    head, _, encoded = shown.pop("preview").partition(",")
    assert shown == found  # The model sees the same pixels.
    assert head == "data:image/jpeg;base64"
    preview = Image.open(io.BytesIO(base64.b64decode(encoded)))
    assert preview.size == (917, 1000)
    assert far(preview, ImageOps.exif_transpose(Image.open(io.BytesIO(content)))) < 2
    assert client.post("/api/overlay", files=sent).status_code == 200


def test_a_bad_photo_is_named_and_the_others_are_captioned(client: httpx.Client) -> None:
    sent = [*files(0), ("photo", ("../a/" + "x" * 200, b"no photo")), *files(1)]
    photos = caption(client, sent)
    short = "x" * 100
    assert [photo["name"] for photo in photos] == ["0.png", short, "1.png"]
    assert photos[1]["error"].startswith(f"{short} is not an image")
    assert photos[0]["captions"]
    assert photos[2]["captions"]
    for answer in (
        client.post("/api/caption", files=sent[1:2]),
        client.post("/api/overlay", files=sent, data={"format": "html"}),
    ):
        assert problem(answer, 422).startswith(f"{short} is not an image")


@pytest.mark.filterwarnings("ignore:sentence 5 has 50 tokens")
def test_translations_are_those_of_the_translator(client: httpx.Client) -> None:
    asked = {"sentences": [*SENTENCES, "", "a man " * 25], "n_best": 2}
    answer = client.post("/api/translate", json=asked)
    assert answer.status_code == 200
    found = answer.json()["translations"]
    direct = make_translator().translate(asked["sentences"])
    for each, expected in zip(found, direct, strict=True):
        best = each["translations"][0]
        assert best["translation"] == expected.text
        assert best["confidence"] == pytest.approx(expected.confidence, rel=1e-5)
        assert best["sure"] is expected.sure
        assert best["tokens"] == list(expected.tokens)
        assert best["source_tokens"] == list(expected.source_tokens)
        weights = np.ravel(best["alignment"])
        np.testing.assert_allclose(weights, expected.alignment.ravel(), atol=1e-3)
    assert [each["source"] for each in found] == asked["sentences"]
    assert [len(each["translations"]) for each in found] == [2, 2, 2, 1, 2]
    assert found[4]["translations"][0]["truncated"] == 20


def test_each_language_has_its_translator_and_captions_need_its_maps() -> None:
    translators = {
        "de": make_translator(),
        "fr": make_translator(attends=False),
        UNDETERMINED: make_translator(),
    }
    with asking(Service(make_captioner(), translators)) as client:
        model = client.get("/api/model").json()
        about = {"map": [4, 4], "confidence": False, "can_sample": True}
        assert about.items() <= model["captioner"].items()
        attends = {tag: each["attends"] for tag, each in model["translators"].items()}
        assert attends == {"de": True, "fr": False, "und": True}
        assert model["languages"] == ["de"]
        for asked, right in (({}, "de"), ({"language": "FR"}, "fr")):
            answer = client.post("/api/translate", json={"sentences": SENTENCES, **asked})
            direct = translators[right].translate(SENTENCES)
            found = [each["translations"][0] for each in answer.json()["translations"]]
            assert [each["translation"] for each in found] == [each.text for each in direct]
        answer = client.post("/api/caption", files=files(0), data={"language": "fr"})
        assert "'language' should be en or de" in problem(answer, 422)
    with asking(Service(make_captioner())) as client:
        assert client.get("/api/model").json()["translators"] == {}
        answer = client.post("/api/translate", json={"sentences": ["A man runs."]})
        assert "no translation model" in problem(answer, 404)


def test_words_are_tested_on_request(client: httpx.Client) -> None:
    (found,) = caption(client, files(1), erase="true", maps="false")
    expected = make_captioner().erase(photo_bytes(1))
    best = found["captions"][0]
    assert best["caption"] == expected.text
    assert len(best["erased"]) == len(expected.erased) > 0
    for word, other in zip(best["erased"], expected.erased, strict=True):
        assert word["position"] == other.position
        assert word["without"] == pytest.approx(other.probabilities[1], abs=0.02)
    assert "erased" not in caption(client, files(1))[0]["captions"][0]
    (begun,) = caption(client, files(1), erase="true", maps="false", begin="a dog")
    assert all(word["instead"].startswith("a dog") for word in begun["captions"][0]["erased"])
    asked = {"language": "DE", "erase": "true"}
    answer = client.post("/api/caption", files=files(0), data=asked)
    assert "'erase' tests English words" in problem(answer, 422)


def drawn(client: httpx.Client, *seeds: int, **fields: Any) -> Any:
    """The text of a page, or the picture of another format."""
    answer = client.post("/api/overlay", files=files(*seeds), data=fields)
    assert answer.status_code == 200, answer.text
    kind = fields.get("format", "png")
    assert answer.headers["content-type"].startswith({"html": "text/"}.get(kind, "image/") + kind)
    assert answer.headers["content-disposition"] == f'attachment; filename="captions.{kind}"'
    return answer.text if kind == "html" else Image.open(io.BytesIO(answer.content))


REGION = make_captioner().preprocessing.region(120, 90)


def test_a_picture_and_an_animation_are_those_of_the_package(client: httpx.Client) -> None:
    best = caption(client, files(1))[0]["captions"][0]
    expected = make_captioner().caption(photo_bytes(1)).panels("1.png", strength=0.6)
    for given in ({}, {"captions": json.dumps([best])}):
        assert far(drawn(client, 1, strength="0.6", **given), expected) < 0.5
        assert far(drawn(client, 1, strength="0.1", **given), expected) > 2
    shown = drawn(client, 1, format="gif", captions=json.dumps([best]))
    assert shown.n_frames == len(best["words"])
    first = frames(picture(1), REGION, MappedCaption(best["words"], np.array(best["maps"])))[0]
    assert far(shown, first) < 6  # Of 256 colours.


def test_a_page_holds_all_photos_and_captions(client: httpx.Client) -> None:
    given = [each["captions"] for each in caption(client, files(1, 2), n_best="2")]
    given[0][0]["words"][0] = "</script><script>alert(1)</script>"
    page = drawn(client, 1, 2, format="html", captions=[json.dumps(each) for each in given])
    items = []
    for seed, of_photo in zip((1, 2), given, strict=True):
        mapped = [MappedCaption(each["words"], np.array(each["maps"])) for each in of_photo]
        items.append(PageItem.of(picture(seed), REGION, mapped, f"{seed}.png"))
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
        assert of(kind).height < of(kind, word_confidence=[None, 0.25]).height
