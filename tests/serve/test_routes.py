"""Captions and translations by requests are those of the package."""

import base64
import io
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from serve_samples import (
    SENTENCES,
    as_directly,
    asking,
    caption,
    files,
    make_captioner,
    make_translator,
    photo_bytes,
    problem,
)

from captioner.caption.caption import Caption
from captioner.caption.photos import Captioned
from captioner.decoding.options import SAMPLING
from captioner.serve.messages import CaptionsAnswer, photo_answer
from captioner.serve.service import UNDETERMINED, Service


def preview_of(photo: dict[str, Any]) -> Image.Image:
    head, _, encoded = photo["preview"].partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(encoded)))


def test_captions_are_those_of_the_captioner(client: httpx.Client) -> None:
    sent = files(0, 1, 2)
    direct = make_captioner().caption([content for _, (_, content) in sent])
    assert len({round(each.log_probability, 2) for each in direct}) == 3
    photos = caption(client, sent)
    assert [photo["name"] for photo in photos] == ["0.png", "1.png", "2.png"]
    for photo, expected in zip(photos, direct, strict=True):
        as_directly(photo, expected)
        assert (photo["width"], photo["height"]) == (120, 90)
        assert photo["region"] == pytest.approx(expected.region)
        assert "preview" not in photo


def test_the_search_is_the_one_asked_for(client: httpx.Client) -> None:
    model = make_captioner()
    (photo,) = caption(client, files(3), beam="4", n_best="2", maximum_length="4", maps="false")
    search = {"beam": 4, "n_best": 2, "minimum_length": 2, "maximum_length": 4}
    (direct,) = model.caption([photo_bytes(3)], **search)
    texts = [each["caption"] for each in photo["captions"]]
    assert texts == [direct.text, direct.alternatives[0].text]
    assert "maps" not in photo["captions"][0]
    (photo,) = caption(client, files(3), n_best="5")  # More than the model's own beam of three.
    assert len(photo["captions"]) == 5
    own = client.get("/api/model").json()["captioner"]["search"]
    given = {name: str(own[name]) for name in own if name not in SAMPLING}
    assert caption(client, files(0), **given) == caption(client, files(0))


def test_a_seed_gives_the_same_samples(client: httpx.Client) -> None:
    asked = {"sample": "true", "temperature": "3", "seed": "7", "n_best": "2"}
    (alone,) = caption(client, files(0), **asked)
    search: Any = {"sample": True, "temperature": 3, "seed": 7, "n_best": 2}
    (direct,) = make_captioner().caption([photo_bytes(0)], **search)
    as_directly(alone, direct)
    assert caption(client, files(0), **asked)[0] == alone
    assert caption(client, files(0), **{**asked, "seed": "8"})[0] != alone


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
    drawn = [
        client.post("/api/overlay", data={"language": tag}, files=files(0)).content
        for tag in ("en", "de")
    ]
    assert drawn[0] != drawn[1]
    assert caption(client, files(0, 1), n_best="2", language="DE") == german
    assert caption(client, files(0, 1), n_best="2", language="EN") == plain


@pytest.mark.parametrize("kind", ["JPEG", "HEIF"])
def test_a_preview_is_the_photo_as_the_model_has_it(client: httpx.Client, kind: str) -> None:
    if kind == "HEIF":
        pytest.importorskip("pillow_heif", reason="no pillow-heif").register_heif_opener()
    photo = Image.new("RGB", (40, 20), "red")
    photo.paste("blue", (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # Held on its side: turned by a quarter, the blue half is on top.
    buffer = io.BytesIO()
    photo.save(buffer, kind, exif=exif.tobytes(), quality=95)
    (found,) = caption(client, [("photo", ("side", buffer.getvalue()))], preview="true")
    assert (found["width"], found["height"]) == (20, 40)
    preview = preview_of(found)
    assert preview.size == (20, 40)
    top, bottom = preview.getpixel((10, 5)), preview.getpixel((10, 35))
    assert top[2] > 200 > 60 > top[0]
    assert bottom[0] > 200 > 60 > bottom[2]


def test_a_large_photo_is_described_in_its_own_pixels(client: httpx.Client) -> None:
    sent = [("photo", ("large.jpg", photo_bytes(0, (2400, 2200), "JPEG")))]
    (found,) = caption(client, sent)
    assert (found["width"], found["height"]) == (2400, 2200)
    region = make_captioner().preprocessing.region(2400, 2200)
    assert found["region"] == pytest.approx(region)
    (shown,) = caption(client, sent, preview="true")
    assert (shown["width"], shown["region"]) == (2400, found["region"])
    assert shown["captions"] == found["captions"]  # The model sees the same pixels.
    assert preview_of(shown).size == (1000, 917)
    assert client.post("/api/overlay", files=sent).status_code == 200


def test_a_bad_photo_is_named_and_the_others_are_captioned(client: httpx.Client) -> None:
    sent = [*files(0), ("photo", ("../a/" + "x" * 200, b"no photo")), *files(1)]
    photos = caption(client, sent)
    short = "x" * 100
    assert [photo["name"] for photo in photos] == ["0.png", short, "1.png"]
    assert photos[1]["error"].startswith(f"{short} is not an image")
    assert photos[0]["captions"]
    assert photos[2]["captions"]
    for address, refused in (("caption", sent[1:2]), ("overlay", sent)):
        answer = client.post(
            f"/api/{address}", files=refused, data={"format": "html"} if refused is sent else {}
        )
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
        assert best["tokens"] == list(expected.tokens)
        assert best["source_tokens"] == list(expected.source_tokens)
        shape = (len(expected.tokens), len(expected.source_tokens))
        weights = np.array(best["alignment"]).reshape(shape)
        np.testing.assert_allclose(weights, expected.alignment.numpy(), atol=1e-3)
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
        assert model["captioner"]["map"] == [4, 4]
        assert not model["captioner"]["confidence"]
        assert list(model["translators"]) == ["de", "fr", UNDETERMINED]
        attends = [each["attends"] for each in model["translators"].values()]
        assert attends == [True, False, True]
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


@pytest.mark.parametrize(
    ("confidence", "said", "in_german"),
    [
        (None, None, None),
        (0.01, "not sure: people would use hardly any of its words", "nicht sicher"),
        (0.25, "somewhat sure: people would use about 2 in 10 of its words", "einigermaßen sicher"),
        (0.41, "fairly sure: people would use about 4 in 10 of its words", "ziemlich sicher"),
        (1.0, "quite sure: people would use nearly all of its words", "sehr sicher"),
    ],
)
def test_a_caption_has_only_the_fields_that_are_known(
    confidence: float | None, said: str | None, in_german: str | None
) -> None:
    sure = None if confidence is None else confidence >= 0.25
    maps = torch.tensor([[[0.25, 0.75]], [[1 / 3, 2 / 3]]])
    words, terms = ("a", "dog"), (-1.0, -1.5)
    region, photo = (0.0, 0.0, 8.0, 8.0), Image.new("RGB", (8, 8))
    made = Caption("a dog", words, -3.0, terms, maps, region, (), -2.0, confidence, sure, photo)
    for language, wanted in ((None, said), ("de", in_german)):
        one = photo_answer(Captioned("a.png", replace(made, language=language)), True, False)
        (photo_found,) = CaptionsAnswer(photos=[one]).model_dump(exclude_none=True)["photos"]
        (found,) = photo_found["captions"]
        assert found["maps"] == [[[0.25, 0.75]], [[0.33333, 0.66667]]]
        assert found.get("confidence_in_words") == wanted
        fields = {"caption", "words", "score", "log_probability", "word_log_probabilities", "maps"}
        if confidence is not None:
            fields |= {"confidence", "sure", "confidence_in_words"}
        assert set(found) == fields
