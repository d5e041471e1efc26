from __future__ import annotations

import httpx


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
