from __future__ import annotations

import io

import httpx
import numpy as np
import pytest
from PIL import Image
from serve_samples import caption


def test_no_upload_is_written_to_a_temporary_file(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (900, 900, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    assert len(buffer.getvalue()) > 2_000_000  # The framework writes 1 MB and more to disk.
    sent = [("photo", ("noise.png", buffer.getvalue()))]

    def refused(*arguments: object, **named: object) -> None:
        raise AssertionError("a temporary file was made")

    for name in ("TemporaryFile", "NamedTemporaryFile", "mkstemp"):
        monkeypatch.setattr(f"tempfile.{name}", refused)
    assert caption(client, sent, preview="true")[0]["captions"]
    for kind in ("png", "gif", "html"):
        answer = client.post("/api/overlay", files=sent, data={"format": kind})
        assert answer.status_code == 200
