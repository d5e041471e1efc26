import io
import re
import socket

import httpx
import numpy as np
import pytest
from PIL import Image
from serve_samples import asking, caption, make_captioner, photo_bytes, problem

from captioner.serve.app import make_app
from captioner.serve.service import Service

OWN_HOSTS = [
    *("localhost", "LOCALHOST:80", "127.0.0.1:8765", "[::1]:8765", "Desk.Example:1"),
    "photos.example.org",
]
FOREIGN_HOSTS = [
    *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.4"),
    *("localhost@evil.example", "[::1", ""),
]


@pytest.mark.parametrize("address", ["/", "/api/health"])
def test_only_its_own_names_are_answered(address: str) -> None:
    app = make_app(Service(make_captioner()), names=["Desk.example", "*.example.org"])
    with asking(app) as client:
        for host in OWN_HOSTS:
            assert client.get(address, headers={"Host": host}).status_code == 200, host
        for host in FOREIGN_HOSTS:
            answer = client.get(address, headers={"Host": host})
            assert answer.status_code == 400, host
            assert "host" in answer.text


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, True),
        ({"Origin": "http://localhost:80"}, True),
        ({"Origin": "HTTP://LocalHost:80", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "http://localhost:81"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://["}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ],
)
def test_other_sites_cannot_use_it(
    client: httpx.Client, headers: dict[str, str], own: bool
) -> None:
    all_headers = {"Host": "localhost:80", **headers}
    sent = [("photo", ("a.png", photo_bytes()))]
    for answer in (
        client.post("/api/caption", files=sent, headers=all_headers),
        client.get("/api/model", headers=all_headers),
    ):
        assert answer.status_code == (200 if own else 403)
        assert "access-control-allow-origin" not in answer.headers
    # A link on another site may lead to the page.
    assert client.get("/", headers=all_headers).status_code == 200


def test_the_public_page_may_use_it_through_a_proxy() -> None:
    """The proxy sends its own name for this server; the browser says from which page it comes."""
    app = make_app(Service(make_captioner()), public_url="https://photos.example:443/captions/")
    own = ["https://photos.example", "http://127.0.0.1:8765"]
    foreign = [
        *("http://photos.example", "https://photos.example:444", "https://[", "null"),
        *("https://evil.example", "https://photos.example.evil.example"),
    ]
    with asking(app) as client:
        for origin in own + foreign:
            headers = {"Host": "127.0.0.1:8765", "Origin": origin}
            answer = client.get("/api/health", headers=headers)
            assert answer.status_code == (200 if origin in own else 403), origin
        # A proxy may also keep the name that the browser asked for.
        assert client.get("/", headers={"Host": "photos.example"}).status_code == 200
        described = client.get("/api/openapi.json").json()
        assert described["servers"] == [{"url": "https://photos.example:443/captions/"}]


def test_pages_of_allowed_sites_may_use_it() -> None:
    allowed = [
        "https://editor.example:443/photos/",
        "http://LocalHost:5173",
        "https://müller.example",
    ]
    app = make_app(Service(make_captioner()), allowed_urls=allowed)
    wish = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
        "Access-Control-Request-Private-Network": "true",  # To a server beside the browser.
    }
    sent = [("photo", ("a.png", photo_bytes()))]
    own = ["https://editor.example", "http://localhost:5173", "https://xn--mller-kva.example"]
    foreign = ["http://editor.example", "http://localhost:5174", "https://x.editor.example", "null"]
    with asking(app) as client:
        for origin in own + foreign:
            headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            preflight = client.options("/api/caption", headers=headers | wish)
            good = client.post("/api/caption", files=sent, headers=headers)
            bad = client.post("/api/caption", headers=headers)
            found = [answer.status_code for answer in (preflight, good, bad)]
            assert found == ([200, 200, 422] if origin in own else [400, 403, 403]), origin
            for answer in (preflight, good, bad):
                told = answer.headers.get("access-control-allow-origin")
                assert told == (origin if origin in own else None)
            assert "access-control-allow-credentials" not in preflight.headers
        # Without the name of a site, nothing says that it is an allowed one.
        assert client.get("/api/model", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


@pytest.mark.parametrize(
    ("header", "is_right"),
    [
        ("Bearer right", True),
        ("bearer right", True),
        (None, False),
        ("Bearer", False),
        ("Bearer wrong", False),
        ("Bearer right2", False),
        ("Bearer r\xefght", False),
        ("Basic right", False),
        ("right", False),
    ],
)
def test_the_interface_needs_the_token_and_the_page_does_not(
    header: str | None, is_right: bool
) -> None:
    app = make_app(
        Service(make_captioner()), allowed_urls=["https://editor.example"], token="right"
    )
    headers = {"Origin": "https://editor.example"}
    given = {} if header is None else {"Authorization": header.encode("latin-1")}
    with asking(app) as client:
        for address in ("/", "/docs", "/api/openapi.json"):
            assert client.get(address).status_code == 200
        sent = [("photo", ("a.png", photo_bytes()))]
        for answer in (
            client.post("/api/caption", files=sent, headers={**headers, **given}),
            client.get("/api/model", headers={**headers, **given}),
        ):
            # A page of the allowed site can read the refusal.
            assert answer.headers["access-control-allow-origin"] == "https://editor.example"
            if is_right:
                assert answer.status_code == 200
            else:
                assert "token is missing or wrong" in problem(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"


def test_without_the_token_no_content_is_read() -> None:
    app = make_app(Service(make_captioner()), token="right")
    with asking(app) as client:
        place = (client.base_url.host, client.base_url.port or 0)
        with socket.create_connection(place, timeout=60) as line:
            line.sendall(
                b"POST /api/caption HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\n\r\n"
            )
            assert line.recv(65536).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("token", [None, "right"])
def test_the_description_has_the_token(token: str | None) -> None:
    with asking(make_app(Service(make_captioner()), token=token)) as client:
        described = client.get("/api/openapi.json").json()
    for methods in described["paths"].values():
        for operation in methods.values():
            assert operation.get("security") == (token and [{"HTTPBearer": []}])


def test_no_upload_is_written_to_a_temporary_file(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (900, 900, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    content = buffer.getvalue()
    assert len(content) > 2_000_000  # The framework writes 1 MB and more to disk.
    sent = [("photo", ("noise.png", content))]

    def refused(*arguments: object, **named: object) -> None:
        raise AssertionError("a temporary file was made")

    for name in ("TemporaryFile", "NamedTemporaryFile", "mkstemp"):
        monkeypatch.setattr(f"tempfile.{name}", refused)
    assert caption(client, sent, preview="true")[0]["captions"]
    for kind in ("png", "gif", "html"):
        answer = client.post("/api/overlay", files=sent, data={"format": kind})
        assert answer.status_code == 200


def test_the_page_names_only_files_that_are_there(client: httpx.Client) -> None:
    seen, wanted = set[str](), {"/"}
    while wanted:
        address = wanted.pop()
        seen.add(address)
        answer = client.get(address)
        assert answer.status_code == 200, address
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.|@import|innerHTML|insertAdjacentHTML", text)
        if "javascript" in answer.headers["content-type"] or address == "/":
            found = re.findall(r'(?:href=|src=|from )"\.?/?([^"#]+)"', text)
            wanted |= {f"/{name}" for name in found} - seen
    assert {"/style.css", "/viewer.css", "/page.js", "/viewer.js", "/photos.js"} <= seen


@pytest.mark.parametrize(
    "address", ["/", "/viewer.js", "/icon.svg", "/api/model", "/api/nothing", "/nothing"]
)
def test_every_answer_forbids_foreign_content(client: httpx.Client, address: str) -> None:
    answer = client.get(address)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers
    stored = "no-store" if address.startswith("/api/") else "no-cache"
    assert answer.headers["cache-control"] == stored
