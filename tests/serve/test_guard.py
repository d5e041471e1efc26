"""Who may ask: host names, other sites, the token; what stays in memory; headers; connections."""

import json
import re
import socket

import httpx
import pytest
from samples import Patch, photo_bytes
from serve_samples import asking, caption, files, make_captioner, problem

from captioner.serve import Limits, server
from captioner.serve.service import Service

PUBLIC = "https://photos.example:443/captions/"
ALLOWED = ["https://editor.example:443/photos/", "http://LocalHost:5173", "https://müller.example"]


@pytest.mark.parametrize("address", ["/", "/api/health"])
def test_only_its_own_names_are_answered(address: str) -> None:
    own = ["localhost", "LOCALHOST:80", "127.0.0.1:8765", "[::1]:8765", "Desk.Example:1"]
    foreign = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.4"]
    with asking(Service(make_captioner()), ["Desk.example", "*.example.org"], PUBLIC) as client:
        for host in (*own, "a.example.org", "photos.example"):
            assert client.get(address, headers={"Host": host}).status_code == 200, host
        for host in (*foreign, "localhost@evil.example", "[::1", ""):
            answer = client.get(address, headers={"Host": host})
            assert "--allow-host NAME adds one" in problem(answer, 400), host


@pytest.mark.parametrize(
    ("headers", "allowed", "told"),
    [
        ([], True, False),
        ([("Origin", "http://localhost:80")], True, False),
        ([("Origin", "HTTP://LocalHost:80"), ("Sec-Fetch-Site", "same-origin")], True, False),
        ([("Origin", "https://photos.example")], True, False),  # The page behind the proxy.
        ([("Origin", "http://localhost:81")], False, False),
        ([("Origin", "null")], False, False),
        ([("Sec-Fetch-Site", "cross-site")], False, False),
        ([("Origin", "https://editor.example"), ("Sec-Fetch-Site", "cross-site")], True, True),
        ([("Origin", "https://xn--mller-kva.example")], True, True),
        ([("Origin", "https://x.editor.example")], False, False),
        ([("Origin", "http://localhost:80"), ("Origin", "https://evil.example")], False, False),
        ([("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")], False, False),
    ],
)
def test_its_own_page_and_allowed_sites_may_use_it(
    headers: list[tuple[str, str]], allowed: bool, told: bool
) -> None:
    """told: CORS tells the browser that the site may read answers."""
    origin = dict(headers).get("Origin")
    headers = [("Host", "localhost:80"), *headers]
    wish = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
        "Access-Control-Request-Private-Network": "true",  # To a server beside the browser.
    }
    service = Service(make_captioner())
    with asking(service, public_url=PUBLIC, allowed_urls=ALLOWED) as client:
        for answer, status in (
            (client.post("/api/caption", files=files(0), headers=headers), 200),
            (client.get("/api/model", headers=headers), 200),
            (client.post("/api/caption", headers=headers), 422),
        ):
            assert answer.status_code == (status if allowed else 403)
            assert answer.headers.get("access-control-allow-origin") == (origin if told else None)
        if origin:
            preflight = client.options("/api/caption", headers=[*headers, *wish.items()])
            if told:
                assert preflight.status_code == 200
            else:
                assert "Disallowed CORS origin" in problem(preflight, 400)
            assert "access-control-allow-credentials" not in preflight.headers
        # A link on another site may lead to the page.
        assert client.get("/", headers=headers).status_code == 200
        described = client.get("/api/openapi.json").json()
        assert described["servers"] == [{"url": PUBLIC}]
        for methods in described["paths"].values():
            assert [each for each in methods.values() if "security" in each] == []


def test_the_interface_needs_the_token_and_the_page_does_not() -> None:
    headers = {"Origin": "https://editor.example"}
    with asking(Service(make_captioner()), allowed_urls=ALLOWED, token="right") as client:
        for address in ("/", "/docs", "/api/openapi.json"):
            assert client.get(address).status_code == 200
        assert client.get("/api/health").json()["status"] == "ok"
        for address, methods in client.get("/api/openapi.json").json()["paths"].items():
            needed = None if address == "/api/health" else [{"HTTPBearer": []}]
            assert [each.get("security") for each in methods.values()] == [needed]
        wrong = ["Bearer", "Bearer wrong", "Bearer right2", "Bearer r\xefght", "Basic right", ""]
        for header in ("Bearer right", "bearer right", *wrong):
            given = {**headers, "Authorization": header.encode("latin-1")}
            for answer in (
                client.post("/api/caption", files=files(0), headers=given),
                client.get("/api/model", headers=given),
            ):
                # A page of the allowed site can read the refusal.
                assert answer.headers["access-control-allow-origin"] == headers["Origin"]
                if header in wrong:
                    assert "token is missing or wrong" in problem(answer, 401)
                    assert answer.headers["www-authenticate"] == "Bearer"
                else:
                    assert answer.status_code == 200
        head = (
            b"POST /api/caption HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\n\r\n"
        )
        with connect(client, head) as line:  # No content is waited for.
            assert line.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_no_upload_is_written_to_a_temporary_file(client: httpx.Client, monkeypatch: Patch) -> None:
    # 2.4 MB: the framework writes 1 MB and more to disk.
    sent = [("photo", ("large.bmp", photo_bytes(0, (900, 900), "BMP")))]

    def refused(*arguments: object, **named: object) -> None:
        raise AssertionError("a temporary file was made")

    for name in ("TemporaryFile", "NamedTemporaryFile", "mkstemp"):
        monkeypatch.setattr(f"tempfile.{name}", refused)
    assert caption(client, sent, preview="true")[0]["captions"]
    assert client.post("/api/overlay", files=sent).status_code == 200


def test_the_page_names_files_that_exist_and_forbids_foreign_content(client: httpx.Client) -> None:
    seen, wanted = set[str](), {"/", "/icon.svg", "/api/model", "/api/nothing", "/nothing"}
    while wanted:
        address = wanted.pop()
        seen.add(address)
        answer, head = client.get(address), client.head(address)
        assert answer.status_code == (404 if "nothing" in address else 200), address
        assert (head.status_code, head.content) == (answer.status_code, b"")
        policy = answer.headers["content-security-policy"]
        for part in ("default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"):
            assert part in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers
        stored = "no-store" if address.startswith("/api/") else "no-cache"
        assert answer.headers["cache-control"] == stored
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.|@import|innerHTML|insertAdjacentHTML", text)
        assert not re.search(r'type="(checkbox|radio)"[^>]*autocomplete', text)  # As HTML has it.
        if "javascript" in answer.headers["content-type"] or address == "/":
            found = re.findall(r'(?:href=|src=|from )"\.?/?([^"#]+)"', text)
            wanted |= {f"/{name}" for name in found} - seen
    assert {"/style.css", "/pages.css", "/page.js", "/viewer.js", "/photos.js"} <= seen


# Connections that ask for nothing, too many of them, and what is not HTTP


def connect(client: httpx.Client, content: bytes = b"") -> socket.socket:
    port = client.base_url.port
    assert port is not None
    line = socket.create_connection(("127.0.0.1", port), timeout=60)
    line.sendall(content)
    return line


def test_idle_connections_half_heads_and_what_is_not_http_are_closed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.2)
    whole = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with asking(Service(make_captioner())) as client:
        for content in (b"", whole[:20], whole + whole[:20]):
            with connect(client, content) as line:
                assert (b'"ok"' in line.makefile("rb").read()) == content.startswith(whole)
        with connect(client, b"nonsense\r\n\r\n") as line:
            assert line.makefile("rb").read().startswith(b"HTTP/1.1 400 ")


def test_who_sends_a_large_content_can_read_its_refusal() -> None:
    large = [("photo", ("a.png", bytes(20_000_000)))]
    with asking(Service(make_captioner(), None, Limits(upload_bytes=1000))) as client:
        for address, status in (("api/caption", 413), ("api/model", 405), ("api/nothing", 404)):
            problem(client.post(address, files=large), status)


def test_a_content_with_a_length_that_is_chunked_too_ends_the_connection() -> None:
    both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    second = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with asking(Service(make_captioner())) as client:
        content = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\n" + both + second
        with connect(client, content) as line:
            head, _, answer = line.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert "is chunked too" in json.loads(answer)["error"]


def test_a_full_house_refuses(monkeypatch: Patch) -> None:
    monkeypatch.setattr(server, "_CONNECTIONS", 2)
    with asking(Service(make_captioner())) as client:
        address = client.base_url.join("/api/health")
        assert httpx.get(address).status_code == 200
        with connect(client):
            assert httpx.get(address).status_code == 503
