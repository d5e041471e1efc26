"""What needs no torch runs where importing it fails, and the rest says what to install."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from photo_samples import DEMO_CAPTION

import captioner

DEMO = Path(captioner.__file__).parent / "demo.jpg"

WITHOUT = """
import sys
for name in ("torch", "torchvision", "yaml", "pycocotools", "onnx", "onnxscript"):
    sys.modules[name] = None
"""
MAIN = """
import json
from captioner.cli.main import main
for arguments in json.loads(sys.argv[1]):
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    print("exit", code, flush=True)
"""


def run(folder: Path, code: str, *arguments: str) -> str:
    """Run Python code where torch is not; gives what it prints."""
    command = [sys.executable, "-c", WITHOUT + code, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for name in ("photo.jpg", "photos/a.jpg", "photos/b.jpg"):
        shutil.copy(DEMO, tmp_path / name)
    (tmp_path / "sentences.en").write_text("Two dogs play in the snow.\n")
    captions = ["a cat on a mat", "a dog in the snow"]
    made = [{"image_id": number, "caption": text} for number, text in enumerate(captions)]
    (tmp_path / "results.json").write_text(json.dumps(made))
    people = [{"id": number, **record} for number, record in enumerate(made)]
    images = [{"id": number, "file_name": f"{number}.jpg"} for number in range(2)]
    (tmp_path / "references.json").write_text(json.dumps({"images": images, "annotations": people}))
    return tmp_path


def test_captions_translations_and_scores_need_no_torch(folder: Path) -> None:
    commands = [
        ["caption", "photo.jpg", "--overlay", "maps.png", "--html", "maps.html", "--gif", "a.gif"],
        ["caption", "photos/", "--jsonl", "captions.jsonl", "--overlay", "maps/", "--resume"],
        ["caption", "photos/", "--xmp", "--text", "--cautious"],
        ["caption", "photo.jpg", "--language", "de", "--n-best", "2"],
        ["translate", "sentences.en", "--alignment", "alignment.png", "--language", "fr"],
        ["caption", "photo.jpg", "--given", "a dog runs", "--overlay", "given.png"],
        ["info"],
        ["score", "results.json", "references.json", "--confidence"],
    ]
    shown = run(folder, MAIN, json.dumps(commands))
    assert shown.count("exit 0") == len(commands), shown
    assert {DEMO_CAPTION, "Deux chiens jouent dans la neige."} <= {*shown.splitlines()}
    assert captioner.load().caption(DEMO, language="de").text in shown
    assert "a dog runs  (log" in shown
    for name in ("maps.png", "maps.html", "a.gif", "captions.jsonl", "maps", "alignment.png"):
        assert (folder / name).exists()
    assert (folder / "photos/a.jpg.xmp").exists() or (folder / "photos/a.xmp").exists()


@pytest.mark.exiftool
def test_embedding_needs_no_torch(folder: Path) -> None:
    shown = run(folder, MAIN, json.dumps([["caption", "photos/", "--embed"]]))
    assert "exit 0" in shown, shown


def test_python_needs_no_torch(folder: Path) -> None:
    code = """
import captioner
model = captioner.load()
caption = model.caption("photo.jpg")
row, column = divmod(int(caption.attention[-1].argmax()), caption.attention.shape[2])
caption.overlay("maps.png")
print(caption, row < 14, model.caption("photo.jpg", language="fr"))
from captioner.serve.app import make_app
from captioner.serve.service import Service
make_app(Service(model, {"de": captioner.load_translator()}))
"""
    french = captioner.load().caption(DEMO, language="fr")
    assert f"{DEMO_CAPTION} True {french}" in run(folder, code)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "config.yaml"], "torch"),
        (["caption", "photo.jpg", "--precision", "bfloat16"], "auto in bfloat16 needs torch"),
        (["caption", "photo.jpg", "--device", "cuda"], "device cuda in float32 needs torch"),
        (["caption", "photo.jpg", "--sample"], "sampling needs torch"),
        (["caption", "photo.jpg", "--model", "."], f"{os.sep}config.json does not exist"),
        (["export", "default", "folder"], "torch"),
        (["calibrate", "model", "--annotations", "references.json"], "model"),
    ],
)
def test_a_command_that_needs_torch_says_so(folder: Path, arguments: list[str], named: str) -> None:
    (folder / "config.yaml").write_text("task: captioning\n")
    shown = run(folder, MAIN, json.dumps([arguments]))
    assert named in shown
    assert "exit 2" in shown
    if "model" not in named and "config" not in named:
        assert "captioner[train]" in shown or "engine 'torch'" in shown
