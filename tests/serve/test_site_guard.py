from __future__ import annotations

import httpx
import pytest
from serve_samples import asking, make_captioner, photo_bytes

from captioner.serve.app import make_app
from captioner.serve.service import Service


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("127.0.0.1:8765", True),
        ("[::1]:8765", True),
        ("192.168.1.4", True),
        ("Desk.Example:1", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost@evil.example", False),
        ("[::1", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("address", ["/", "/api/health"])
def test_only_its_own_names_are_answered(host: str, own: bool, address: str) -> None:
    app = make_app(Service(make_captioner()), names=["Desk.example"])
    with asking(app) as client:
        answer = client.get(address, headers={"Host": host})
    assert answer.status_code == (200 if own else 403)
    if not own:
        assert "host name" in answer.json()["error"]


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
        assert not any(name.startswith("access-control") for name in answer.headers)
    # A link on another site may lead to the page.
    assert client.get("/", headers=all_headers).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://photos.example", 200),
        ("http://127.0.0.1:8765", 200),
        ("http://photos.example", 403),
        ("https://photos.example:444", 403),
        ("https://[", 403),
        ("https://evil.example", 403),
        ("https://photos.example.evil.example", 403),
    ],
)
def test_the_public_page_may_use_it_through_a_proxy(origin: str, status: int) -> None:
    """The proxy sends its own name for this server; the browser says from which page it comes."""
    app = make_app(Service(make_captioner()), public_url="https://photos.example/captions/")
    with asking(app) as client:
        headers = {"Host": "127.0.0.1:8765", "Origin": origin}
        assert client.get("/api/health", headers=headers).status_code == status
        # A proxy may also keep the name that the browser asked for.
        assert client.get("/", headers={"Host": "photos.example"}).status_code == 200
        described = client.get("/api/openapi.json").json()
        assert described["servers"] == [{"url": "https://photos.example/captions/"}]
