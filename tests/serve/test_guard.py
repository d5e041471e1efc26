from __future__ import annotations

import re

import httpx
import pytest
from serve_samples import in_thread, make_captioner, photo_bytes

from captioner.serve.app import make_app
from captioner.serve.service import Service


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("localhost.:80", True),
        ("127.0.0.1:8765", True),
        ("[::1]:8765", True),
        ("192.168.1.4", True),
        ("desk.example", True),
        ("Desk.Example.:1", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost@evil.example", False),
        ("evil.example@localhost", False),
        ("[::1", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("address", ["/", "/api/health"])
def test_only_its_own_names_are_answered(host: str, own: bool, address: str) -> None:
    app = make_app(Service(make_captioner()), names=["Desk.example."])
    with in_thread(app) as base, httpx.Client(base_url=base) as client:
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


def test_every_answer_forbids_what_comes_from_elsewhere(client: httpx.Client) -> None:
    addresses = ["/", "/page.js", "/viewer.js", "/viewer.css", "/icon.svg"]
    addresses += ["/api/model", "/api/nothing", "/nothing"]
    for address in addresses:
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


def test_the_page_names_only_files_that_are_there(client: httpx.Client) -> None:
    seen, wanted = set[str](), {"/"}
    while wanted:
        address = wanted.pop()
        seen.add(address)
        answer = client.get(address)
        assert answer.status_code == 200, address
        if "javascript" in answer.headers["content-type"] or address == "/":
            found = re.findall(r'(?:href=|src=|from )"\.?/?([^"#]+)"', answer.text)
            wanted |= {f"/{name}" for name in found} - seen
    assert {"/style.css", "/viewer.css", "/page.js", "/viewer.js", "/photos.js"} <= seen
    for address in sorted(seen):
        text = client.get(address).text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.|@import|innerHTML|insertAdjacentHTML", text)


def test_the_example_is_there_only_where_it_was_given(client: httpx.Client) -> None:
    assert client.get("/demo.jpg").status_code == 404
