import base64
import io
import json
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from fastapi import HTTPException
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
from captioner.decoding.options import SAMPLING
from captioner.serve.app import make_app
from captioner.serve.messages import CaptionAnswer, answer_problem
from captioner.serve.service import UNDETERMINED, Service


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


def test_options_left_out_are_those_of_the_model(client: httpx.Client) -> None:
    own = client.get("/api/model").json()["captioner"]["search"]
    given = {name: str(own[name]) for name in own if name not in SAMPLING}
    assert caption(client, files(0), **given) == caption(client, files(0))


def test_a_seed_gives_the_same_samples(client: httpx.Client) -> None:
    asked = {"sample": "true", "temperature": "3", "seed": "7", "n_best": "2"}
    (alone,) = caption(client, files(0), **asked)
    search = {"beam": 3, "n_best": 2, "minimum_length": 2, "maximum_length": 6}
    sampling: Any = {"sample": True, "temperature": 3, "seed": 7}
    (direct,) = make_captioner().caption([photo_bytes(0)], **search, **sampling)
    as_directly(alone, direct)
    assert caption(client, files(0), **asked)[0] == alone
    assert caption(client, files(0), **{**asked, "seed": "8"})[0] != alone


def test_captions_are_translated_and_keep_the_original(client: httpx.Client) -> None:
    plain, other = caption(client, files(0, 1), n_best="2")
    photo, photo_2 = caption(client, files(0, 1), n_best="2", language="de")
    assert len(photo["captions"]) == 2
    for found, original in zip(photo["captions"], plain["captions"], strict=True):
        assert found["language"] == "de"
        assert found["original"] == {name: original[name] for name in original if name != "maps"}
        assert found["caption"] == " ".join(found["words"]) != original["caption"]
        assert np.array(found["maps"]).shape == (len(found["words"]), 4, 4)
        assert np.array(found["maps"]).sum(axis=(1, 2)) == pytest.approx(1, abs=0.001)
    assert "language" not in other["captions"][0]
    for kind in ("png", "html"):
        sent = {"data": {"format": kind, "language": "de"}, "files": files(0)}
        german = client.post("/api/overlay", **sent).content
        del sent["data"]["language"]
        assert german != client.post("/api/overlay", **sent).content
    assert caption(client, files(0, 1), n_best="2", language="DE") == [photo, photo_2]
    assert caption(client, files(0, 1), n_best="2", language="EN") == [plain, other]


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
    head, _, encoded = found["preview"].partition(",")
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(encoded))) as preview:
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
    with Image.open(io.BytesIO(base64.b64decode(shown["preview"].partition(",")[2]))) as preview:
        assert preview.size == (1000, 917)
    for kind in ("png", "gif", "html"):
        answer = client.post("/api/overlay", files=sent, data={"format": kind})
        assert answer.status_code == 200


def test_a_bad_photo_is_named_and_the_others_are_captioned(client: httpx.Client) -> None:
    name = "../a/" + "x" * 100 + ".txt"
    sent = [*files(0), ("photo", (name, b"no photo")), *files(1)]
    photos = caption(client, sent)
    short = "x" * 99 + "…"
    assert [photo["name"] for photo in photos] == ["0.png", short, "1.png"]
    assert photos[1]["error"].startswith(f"{short} is not an image")
    assert photos[0]["captions"]
    assert photos[2]["captions"]
    sentence = problem(client.post("/api/caption", files=sent[1:2]), 422)
    assert sentence.startswith(f"{short} is not an image")


def test_translations_are_those_of_the_translator(client: httpx.Client) -> None:
    asked = {"sentences": [*SENTENCES, ""], "n_best": 2}
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
    assert [len(each["translations"]) for each in found] == [2, 2, 2, 1]


@pytest.mark.filterwarnings("ignore:sentence 1 has 50 tokens")
def test_a_sentence_that_is_cut_says_so(client: httpx.Client) -> None:
    answer = client.post("/api/translate", json={"sentences": ["a man " * 25]})
    (found,) = answer.json()["translations"]
    assert found["translations"][0]["truncated"] == 20


def test_without_a_translator_there_is_none() -> None:
    with asking(make_app(Service(make_captioner()))) as client:
        assert client.get("/api/model").json()["translators"] == {}
        answer = client.post("/api/translate", json={"sentences": ["A man runs."]})
        assert "no translation model" in problem(answer, 404)


def test_each_language_has_its_translator_and_captions_need_its_maps() -> None:
    translators = {
        "de": make_translator(),
        "fr": make_translator(attends=False),
        UNDETERMINED: make_translator(),
    }
    with asking(make_app(Service(make_captioner(), translators))) as client:
        model = client.get("/api/model").json()
        assert model["captioner"]["map"] == [4, 4]
        assert model["limits"]["photos"] == 16
        assert model["languages"] == ["de"]
        attends = {tag: each["attends"] for tag, each in model["translators"].items()}
        assert attends == {"de": True, "fr": False, "und": True}
        for language, translator in translators.items():
            asked: dict[str, Any] = {"sentences": SENTENCES[:1], "language": language}
            (found,) = client.post("/api/translate", json=asked).json()["translations"]
            (expected,) = translator.translate(SENTENCES[:1])
            assert found["translations"][0]["translation"] == expected.text
            asked["language"] = language.upper()
            assert client.post("/api/translate", json=asked).json()["translations"] == [found]
        asked = {"sentences": SENTENCES[:1], "language": "fr", "copy_unknown": True}
        assert "copy_unknown" in problem(client.post("/api/translate", json=asked), 422)


def made(confidence: float | None) -> Caption:
    sure = None if confidence is None else confidence >= 0.25
    maps = torch.tensor([[[0.25, 0.75]], [[1 / 3, 2 / 3]]])
    words, terms = ("a", "dog"), (-1.0, -1.5)
    return Caption("a dog", words, -3.0, terms, maps, None, (), -2.0, confidence, sure)


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
    wanted = {"caption", "words", "score", "log_probability", "word_log_probabilities"}
    if confidence is not None:
        wanted |= {"confidence", "sure", "confidence_in_words"}
    (answer,) = CaptionAnswer.all_of(made(confidence), maps=False)
    assert set(answer.model_dump(exclude_none=True)) == wanted
    assert answer.confidence_in_words == said
    german = replace(made(confidence), language="de")
    assert CaptionAnswer.all_of(german, maps=False)[0].confidence_in_words == in_german
    (answer,) = CaptionAnswer.all_of(made(confidence), maps=True)
    assert answer.maps == [[[0.25, 0.75]], [[0.33333, 0.66667]]]


def test_any_sentence_can_be_answered() -> None:
    answer = answer_problem(HTTPException(422, "\ud800 犬 </script>"))
    assert json.loads(bytes(answer.body)) == {"error": "? 犬 </script>"}
    assert answer.media_type == "application/json"
