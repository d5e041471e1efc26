"""What is refused, each by one sentence that reveals nothing about the machine."""

import json
import sys
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from samples import Patch, Refused, photo_bytes
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serve_samples import Running, asking, caption, files, make_captioner, problem

from captioner.errors import UserError
from captioner.serve import Limits
from captioner.serve.server import listen
from captioner.serve.service import Service

GOOD: dict[str, Any] = {"words": ["a", "dog"], "maps": [[[0.5, 0.5]], [[0.0, 1.0]]]}
JSON, FORM = "application/json", "multipart/form-data; boundary=x"

PHOTOS = b'--x\r\nContent-Disposition: form-data; name="photos"\r\n\r\n1\r\n--x--\r\n'

FIELDS = [
    ({"temperature": "0.5"}, "'temperature' has no meaning without 'sample'"),
    ({"length_normalisation": "1e400"}, "length_normalisation should be a finite number"),
    ({"beam": ""}, "field 'beam' is empty; leave it out"),
    ({"nbest": "3"}, "unknown field 'nbest'; did you mean 'n_best'?"),
    ({"photo": "https://a"}, "'photo' is missing or text; send files in a form, as curl"),
    ({"language": "fr"}, "'language' should be en or de"),
    ({"maps": "true"}, "unknown field 'maps'"),
    ({"captions": [json.dumps([GOOD])] * 2}, "once for each photo"),
    ({"without": ["man", "woman"]}, "field 'without' is given twice"),
    ({"begin": "a dog a dog", "maximum_length": "3"}, "begin has more words than maximum_length"),
]
BAD_MAPS = "should have a map (rows, columns) of weights >= 0 that sum to 1 for each word"
CAPTIONS = [
    ([GOOD] * 21, "captions[0] should have at most 20 items"),
    ([{**GOOD, "maps": [[[0.5, 0.5]]]}], BAD_MAPS),
    ([{**GOOD, "word_confidence": [0.5]}], BAD_MAPS),
    ([{**GOOD, "maps": [[[0.5, 0.5]], [[-1.0, 2.0]]]}], BAD_MAPS),
    ([{**GOOD, "maps": [[[0.5, 0.5]], [[1.0]]]}], BAD_MAPS),
    ([{**GOOD, "maps": [[[0.5, 0.5]], [[1e300, -1e300]]]}], BAD_MAPS),
    ([{**GOOD, "maps": [[[0.5, 0.5]], [[float("nan"), 1.0]]]}], "should be a finite number"),
]
CONTENTS = [
    ("caption", b"{}", JSON, 422, "'photo' is missing or text"),
    ("caption", b"\xff\xd8", "image/jpeg", 422, "as curl -F photo=@photo.jpg does: addresses are"),
    ("caption", PHOTOS, FORM, 422, "addresses are not fetched; did you mean 'photo'?"),
    ("caption", b"", "multipart/form-data", 400, "boundary"),
    ("translate", b"[" + b"[]" * 300_000, JSON, 413, "larger than 524,288 bytes"),
    ("translate", b"[" * 5000, JSON, 422, "should be a JSON object"),
    ("translate", b'{"beam": %s}' % (b"1" * 5000), JSON, 422, "should be a JSON object"),
    ("translate?beam=3", b'{"sentences": ["a"]}', JSON, 422, "field 'beam' is in the address"),
    ("caption?maps=false&x", b"", JSON, 422, "field 'maps' is in the address"),
    ("translate", b'{"sentences": ["\\ud800"]}', JSON, 422, "sentences[0] should be"),
    ("translate", b'{"sentences": ["a"], "language": "it"}', JSON, 422, "'language' should be de"),
    ("translate", b'{"sentences": ["a"]}', None, 422, "as application/json"),
    ("edits", b'{"image": "a", "caption": "a"}', JSON, 404, "captioner serve --edits FILE keeps"),
]
ADDRESSES = [
    ("GET", "/api/nothing", 404),
    ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
    ("GET", "/api/caption", 405),
    ("POST", "/api/nothing", 404),
    ("DELETE", "/nothing", 404),
    ("POST", "/", 405),
    ("GET", "/api/model?language=de", 422),
]


def test_wrong_requests_are_refused(client: httpx.Client) -> None:
    drawn = [({"captions": json.dumps(value)}, named) for value, named in CAPTIONS]
    for fields, named in FIELDS + drawn:
        answer = client.post("/api/overlay", files=files(0), data=fields)
        assert named in problem(answer, 422)
    as_file = [*files(0), ("beam", ("beam.txt", b"3"))]
    answer = client.post("/api/overlay", files=as_file)
    assert problem(answer, 422) == "field 'beam' is a file; send it as text"
    answer = client.post("/api/overlay", files=files(0), data={"captions": ["1" * 1_000_000] * 5})
    assert "larger than 4,194,304 characters" in problem(answer, 413)
    answer = client.post("/api/overlay", files=files(0, 1), data={"format": "gif"})
    assert "a gif shows one photo" in problem(answer, 422)
    for address, content, kind, status, named in CONTENTS:
        headers = {"Content-Type": kind} if kind else {}
        answer = client.post(f"/api/{address}", content=content, headers=headers)
        assert named in problem(answer, status)
    whole = client.post("/api/translate", json={"sentences": ["A man runs."], "beam": 2.0})
    assert whole.status_code == 200  # As JSON's descriptions understand whole numbers.
    ranged = client.get("/demo.jpg", headers={"Range": "bytes=nonsense"})
    assert (ranged.status_code, "accept-ranges" in ranged.headers) == (200, False)
    for method, address, status in ADDRESSES:
        problem(client.request(method, address), status)


def test_requests_over_a_limit_are_refused() -> None:
    limits = Limits(upload_bytes=60_000, pixels=11_000, photos=2)
    with asking(Service(make_captioner(), None, limits)) as client:
        assert len(caption(client, files(0, 1))) == 2  # 10,800 pixels each.
        answer = client.post("/api/caption", files=files(0, 1, 2))
        assert "has 3 photos, and the limit is 2" in problem(answer, 422)
        wide = [("photo", ("wide.png", photo_bytes(0, (140, 90))))]
        sentence = problem(client.post("/api/caption", files=wide), 422)
        assert sentence.startswith("wide.png is too large: 140 x 90 is 12,600 pixels")
        large = [("photo", ("large.png", b"x" * 60_000))]
        assert "60,000 bytes" in problem(client.post("/api/caption", files=large), 413)
        content, headers = iter([b"y" * 10_000] * 7), {"Content-Type": JSON}
        answer = client.post("/api/translate", content=content, headers=headers)
        assert "60,000 bytes" in problem(answer, 413)


def test_a_server_that_cannot_start_says_why(refused: Refused, monkeypatch: Patch) -> None:
    taken = listen("127.0.0.1", 0)
    port = taken.socket.getsockname()[1]
    sentence = f"port {port}: Address already in use; see --host"
    with taken.socket, pytest.raises(UserError, match=sentence):
        listen("127.0.0.1", port)
    monkeypatch.setenv("CAPTIONER_TOKEN", " ")
    assert "CAPTIONER_TOKEN should hold a token" in refused(["serve"])
    monkeypatch.setitem(sys.modules, "captioner.serve.app", None)
    assert 'uvicorn: pip install "captioner[serve]"' in refused(["serve"])


FORM_LISTS = ("photo", "captions")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["caption", "overlay", "translate", "edits", "health", "model"])
def test_answers_are_as_described(server: Running, name: str) -> None:
    """Valid and invalid requests get only answers that the description has, and no status 500.

    A valid request may be refused: that a file is no photo is not in the description.
    """
    described = schemathesis.openapi.from_url(f"{server.address}api/openapi.json")
    assert len(described.raw_schema["paths"]) == 6
    (method,) = described.raw_schema["paths"][f"/api/{name}"]
    patient = {"derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}
    for mode in list(GenerationMode)[: 2 if method == "post" else 1]:  # A GET cannot be wrong.
        operation = described[f"/api/{name}"][method.upper()]

        @settings(max_examples=60, **patient)
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case: Any) -> None:
            if (
                isinstance(case.body, dict) and "photo" in case.body
            ):  # A form sends a list of one as the one, of none not.
                others = [case.body[field] for field in case.body if field not in FORM_LISTS]
                assume(all(len(value) > 1 for value in others if isinstance(value, list)))
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        run()
