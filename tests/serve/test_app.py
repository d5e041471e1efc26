from __future__ import annotations

import re

import httpx


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


def test_every_answer_forbids_foreign_content(client: httpx.Client) -> None:
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
