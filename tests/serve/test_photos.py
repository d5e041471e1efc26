from __future__ import annotations

import io
import sys

import httpx
import numpy as np
import pytest
from PIL import Image
from serve_asking import Files, caption
from serve_samples import Running


@pytest.fixture(scope="module")
def large_photo() -> Files:
    """A photo above 1 MB, the size from which the framework writes uploads to disk."""
    noise = np.random.default_rng(0).integers(0, 255, (900, 900, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    assert len(buffer.getvalue()) > 2_000_000
    return [("photo", ("noise.png", buffer.getvalue()))]


def test_no_upload_is_written_to_a_temporary_file(
    client: httpx.Client, large_photo: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object, **named: object) -> None:
        raise AssertionError("a temporary file was made")

    for name in ("TemporaryFile", "NamedTemporaryFile", "mkstemp"):
        monkeypatch.setattr(f"tempfile.{name}", refused)
    assert caption(client, large_photo)[0]["captions"]
    for kind in ("png", "gif", "html"):
        answer = client.post("/api/overlay", files=large_photo, data={"format": kind})
        assert answer.status_code == 200


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")
def test_a_server_that_can_write_no_file_answers(server: Running, large_photo: Files) -> None:
    import resource

    before = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with httpx.Client(base_url=server.address, timeout=None) as client:
            assert caption(client, large_photo, preview="true")[0]["captions"]
            for kind in ("png", "gif", "html"):
                answer = client.post("/api/overlay", files=large_photo, data={"format": kind})
                assert answer.status_code == 200, answer.text
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, before)
