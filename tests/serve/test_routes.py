from __future__ import annotations

import base64
import io
import json
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import numpy as np
import pytest
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

from captioner.decoding import SearchOptions, TranslationSearch
from captioner.decoding.options import SAMPLING
from captioner.serve.app import make_app
from captioner.serve.limits import Limits
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
    (direct,) = model.caption(
        [photo_bytes(3)], beam=4, n_best=2, minimum_length=2, maximum_length=4
    )
    texts = [each["caption"] for each in photo["captions"]]
    assert texts == [direct.text, direct.alternatives[0].text]
    assert "maps" not in photo["captions"][0]
    (photo,) = caption(client, files(3), n_best="5")  # More than the model's own beam of three.
    assert len(photo["captions"]) == 5


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


def test_a_seed_gives_the_same_samples(client: httpx.Client) -> None:
    asked = {"sample": "true", "temperature": "3", "seed": "7", "n_best": "2"}
    (alone,) = caption(client, files(0), **asked)
    (direct,) = make_captioner().caption(
        [photo_bytes(0)],
        beam=3,
        n_best=2,
        sample=True,
        temperature=3,
        seed=7,
        minimum_length=2,
        maximum_length=6,
    )
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
    asked = {"data": {"language": "fr"}, "files": files(0)}
    assert "'language' should be en or de" in problem(client.post("/api/caption", **asked), 422)
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
    sent = [*files(0), ("photo", ("../a/notes.txt", b"no photo")), *files(1)]
    photos = caption(client, sent)
    assert [photo["name"] for photo in photos] == ["0.png", "notes.txt", "1.png"]
    assert photos[1]["error"].startswith("notes.txt is not an image")
    assert photos[0]["captions"]
    assert photos[2]["captions"]
    sentence = problem(client.post("/api/caption", files=sent[1:2]), 422)
    assert sentence.startswith("notes.txt is not an image")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"beam": "0"}, "beam '0' is not at least 1"),
        ({"beam": "21"}, "'beam' is 21, and the limit is 20"),
        ({"n_best": "21"}, "'n_best' is 21, and the limit is 20"),
        ({"beam": "9" * 5000}, "beam should be a whole number"),
        ({"n_best": "3", "beam": "2"}, "n_best 3"),
        ({"maximum_length": "1000"}, "'maximum_length' is 1000"),
        ({"temperature": "0.5"}, "'temperature' has no meaning without 'sample'"),
        ({"sample": "perhaps"}, "sample should be true or false"),
        ({"length_normalisation": "1e400"}, "length_normalisation should be a finite number"),
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"nbest": "3"}, "unknown field 'nbest'; did you mean 'n_best'?"),
        ({"photo": "text"}, "photo[0]: expected a file, found text"),
    ],
)
def test_a_wrong_field_is_named(client: httpx.Client, fields: dict[str, str], named: str) -> None:
    answer = client.post("/api/caption", files=files(0), data=fields)
    assert named in problem(answer, 422)


@pytest.mark.parametrize(
    ("content", "kind", "status", "named"),
    [
        (b"{}", "application/json", 422, "'photo' is missing: send a form"),
        (b"\xff\xd8=", "application/x-www-form-urlencoded", 422, "'photo' is missing: send a form"),
        (b"", "multipart/form-data", 400, "boundary"),
        (b"nonsense", "multipart/form-data; boundary=x", 400, "Invalid multipart data"),
        (b"--x\r\n\r\nvalue\r\n--x--", "multipart/form-data; boundary=x", 400, "must be provided"),
        (b"--x\r\n" + b"a" * 70_000, "multipart/form-data; boundary=x", 400, "Invalid"),
        (b"", "multipart/form-data; boundary=" + "x" * 5000, 400, "Invalid multipart data"),
        (b"--x", "multipart/form-data; boundary=x; charset=nonsense", 422, "'photo' is missing"),
    ],
)
def test_malformed_forms_are_refused(
    client: httpx.Client, content: bytes, kind: str, status: int, named: str
) -> None:
    for address in ("/api/caption", "/api/overlay"):
        answer = client.post(address, content=content, headers={"Content-Type": kind})
        assert named in problem(answer, status)


def limited(limits: Limits) -> AbstractContextManager[httpx.Client]:
    return asking(make_app(Service(make_captioner(), {"de": make_translator()}, limits)))


def test_requests_over_a_limit_are_refused() -> None:
    with limited(Limits(upload_bytes=60_000, pixels=11_000, photos=2)) as client:
        assert len(caption(client, files(0, 1))) == 2  # 10,800 pixels each.
        assert "more than 2 times" in problem(
            client.post("/api/caption", files=files(0, 1, 2)), 422
        )
        wide = [("photo", ("wide.png", photo_bytes(0, (140, 90))))]
        sentence = problem(client.post("/api/caption", files=wide), 422)
        assert sentence.startswith("wide.png is too large: 140 x 90 is 12,600 pixels")
        large = [("photo", ("large.png", b"x" * 60_000))]
        assert "60,000 bytes" in problem(client.post("/api/caption", files=large), 413)

        def without_length() -> Iterator[bytes]:
            yield b"--x\r\n"
            for _ in range(7):
                yield b"y" * 10_000

        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = client.post("/api/overlay", content=without_length(), headers=headers)
        assert answer.status_code in (400, 413)
        headers = {"Content-Type": "application/json"}
        answer = client.post("/api/translate", content=without_length(), headers=headers)
        assert "60,000 bytes" in problem(answer, 413)


def test_content_that_does_not_arrive_is_not_waited_for() -> None:
    with (
        limited(Limits(seconds=0.2)) as client,
        socket.create_connection((client.base_url.host, client.base_url.port or 0)) as line,
    ):
        head = "POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
        line.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n{")
        answer = line.recv(65536).decode()
        assert answer.startswith("HTTP/1.1 408 ")
        assert client.get("/api/health").json() == {"status": "ok", "waiting": 0}


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


@pytest.mark.parametrize(
    ("content", "status", "named"),
    [
        (b"", 422, "a JSON object"),
        (b"{", 400, "not JSON"),
        (b"[" * 5000, 400, "error parsing the body"),
        (b'{"sentences": [1' + b"0" * 5000 + b"]}", 400, "error parsing the body"),
        (b"[]", 422, "a JSON object"),
        (b"{}", 422, "'sentences' is missing"),
        (b'{"sentences": []}', 422, "sentences should have at least 1 item"),
        (b'{"sentences": ["\\ud800"]}', 422, "sentences[0] should be text"),
        (
            json.dumps({"sentences": ["x" * 2001]}).encode(),
            422,
            "should have at most 2000 characters",
        ),
        (
            json.dumps({"sentences": ["x"] * 17}).encode(),
            422,
            "should have at most 16 items",
        ),
        (b'{"sentences": ["a"], "beam": "3"}', 422, "beam should be a whole number"),
        (b'{"sentences": ["a"], "beam": 21}', 422, "'beam' is 21"),
        (b'{"sentences": ["a"], "coverage_penalty": NaN}', 422, "finite"),
        (b'{"sentences": ["a"], "beem": 1}', 422, "unknown field 'beem'; did you mean 'beam'?"),
        (b'{"sentences": ["a"], "\\ud800": 1}', 422, "should be a JSON object"),
    ],
)
def test_invalid_translation_requests_are_refused(
    client: httpx.Client, content: bytes, status: int, named: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/translate", content=content, headers=headers)
    assert named in problem(answer, status)
    answer = client.post("/api/translate", content=content)
    assert "as application/json" in problem(answer, 422)


def test_copy_unknown_needs_attention() -> None:
    with asking(
        make_app(Service(make_captioner(), {"de": make_translator(attends=False)}))
    ) as client:
        assert client.get("/api/model").json()["translators"]["de"]["attends"] is False
        asked = {"sentences": ["A man runs."], "copy_unknown": True}
        assert "copy_unknown" in problem(client.post("/api/translate", json=asked), 422)
        answer = client.post("/api/translate", json={"sentences": ["A man runs."]})
        assert answer.json()["translations"][0]["translations"][0]["alignment"][0] == []


def test_without_a_translator_there_is_none() -> None:
    with asking(make_app(Service(make_captioner()))) as client:
        assert client.get("/api/model").json()["translators"] == {}
        asked = {"data": {"language": "de"}, "files": files(0)}
        assert "'language' should be en" in problem(client.post("/api/caption", **asked), 422)
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
        assert model["languages"] == ["de"]
        assert list(model["translators"]) == ["de", "fr", "und"]
        asked = {"data": {"language": "fr"}, "files": files(0)}
        assert "'language' should be en or de" in problem(client.post("/api/caption", **asked), 422)
        for language, translator in translators.items():
            asked = {"sentences": SENTENCES[:1], "language": language}
            (found,) = client.post("/api/translate", json=asked).json()["translations"]
            (expected,) = translator.translate(SENTENCES[:1])
            assert found["translations"][0]["translation"] == expected.text
            asked["language"] = language.upper()
            assert client.post("/api/translate", json=asked).json()["translations"] == [found]
        for language in ("it", "en"):
            asked = {"sentences": SENTENCES[:1], "language": language}
            answer = client.post("/api/translate", json=asked)
            assert "field 'language' should be de or fr or und" in problem(answer, 422)


def test_the_models_are_described(client: httpx.Client) -> None:
    found = client.get("/api/model").json()
    assert found["captioner"]["map"] == [4, 4]
    assert found["captioner"]["search"]["beam"] == 3
    assert found["limits"]["photos"] == 16
    assert found["languages"] == ["de"]
    assert found["translators"]["de"]["search"]["maximum_length"] == 7


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("GET", "/api/nothing", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/static/index.html", 404),
        ("GET", "/api/caption", 405),
        ("POST", "/api/health", 405),
        ("POST", "/", 405),
    ],
)
def test_unknown_addresses_and_methods_are_refused(
    client: httpx.Client, method: str, address: str, status: int
) -> None:
    problem(client.request(method, address), status)
