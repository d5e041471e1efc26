"""A client that is generated from the description sends photos and reads their captions."""

import io
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from samples import Patch, photo_bytes
from serve_samples import make_captioner

GENERATOR = shutil.which("openapi-python-client")


@pytest.mark.slow
@pytest.mark.skipif(GENERATOR is None, reason="needs openapi-python-client")
def test_a_generated_client_sends_photos(
    client: httpx.Client, tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "api.json").write_bytes(client.get("/api/openapi.json").content)
    command = ["generate", "--path", "api.json", "--meta", "none", "--output-path", "generated"]
    subprocess.run([str(GENERATOR), *command], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("client", "types", "models", "api.default.caption", "api.default.translate")
    made, types, models, caption, translate = (import_module(f"generated.{name}") for name in names)
    files = [types.File(io.BytesIO(photo_bytes(seed)), f"{seed}.png") for seed in (0, 1)]
    asking: Any = made.Client(str(client.base_url).rstrip("/"))
    answer = caption.sync(client=asking, body=models.CaptionForm(files, maps=False, n_best=2))
    direct = make_captioner().caption([photo_bytes(seed) for seed in (0, 1)])
    assert [photo.captions[0].caption for photo in answer.photos] == [each.text for each in direct]
    assert [len(photo.captions) for photo in answer.photos] == [2, 2]
    asked = models.TranslationRequest(["A man runs."])
    assert translate.sync(client=asking, body=asked).translations[0].source == "A man runs."
