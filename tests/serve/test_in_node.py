"""The page's captions in Node, by the program of docs/onnx.md."""

import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from samples import Patch

import captioner
from captioner.model_folders import DEMO_PHOTO, ModelFolder, model_folder
from captioner.serve import page_without_server

FOUND = shutil.which("node") and subprocess.run(
    ["node", "-e", 'require("onnxruntime-node")'], capture_output=True
)
pytestmark = pytest.mark.skipif(
    not FOUND or FOUND.returncode != 0, reason="needs Node with onnxruntime-node in NODE_PATH"
)


def test_the_captions_are_those_of_python(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(page_without_server, "_write_runtime", lambda folder: None)
    model = ModelFolder(model_folder())
    page_without_server.export_page(model, tmp_path, "float32", None)
    docs = Path(__file__).parents[2] / "docs" / "onnx.md"
    program = docs.read_text(encoding="utf-8").partition("```js\n")[2].partition("```")[0]
    (tmp_path / "caption.js").write_text(program, encoding="utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    photo = Image.open(DEMO_PHOTO).convert("RGBA")
    (tmp_path / "photo.rgba").write_bytes(photo.tobytes())
    command = ["node", "caption.js", *map(str, photo.size), "photo.rgba"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == captioner.load(tmp_path).caption(DEMO_PHOTO).text, done.stderr
