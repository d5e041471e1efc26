"""A static page that captions photos in the browser, with the ONNX folder beside it."""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from captioner.arrays import Array
from captioner.backends.export_weights import Precision
from captioner.backends.graph_captions import open_captions
from captioner.backends.graphs import search_inputs
from captioner.caption.config import captioner_config
from captioner.errors import UserError
from captioner.files import read_text, write_bytes, write_json, write_text
from captioner.model_folders import DEMO_PHOTO, GRAPHS, WEIGHTS, ModelFolder, file_digest
from captioner.model_saving import copy_model, saving
from captioner.render.page import escaped, static_file, viewer_script
from captioner.schema import to_mapping
from captioner.text.languages import VOWEL_SOUND

RUNTIME = "onnxruntime-web@1.22.0"  # Runs the graphs in the browser. MIT licence.
_RUNTIME_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
_SUFFIX = ".mjs", ".js"  # Of scripts, there and here: servers may not know the first.

_STATIC = Path(__file__).with_name("page_files")


def has_graphs_for_browsers(folder: ModelFolder) -> bool:
    """Whether a page can have a captioner's graphs: browsers read weights at the graphs' offsets.

    Another tool that saves the weights again, at other offsets, leaves out their digest.
    """
    if folder.kind != "captioner" or not folder.has_graphs:
        return False
    weights = folder.files / WEIGHTS
    return not folder.has_weights or folder.digests.get(WEIGHTS) == file_digest(weights)


def export_page(model: ModelFolder, folder: Path, precision: Precision, title: str | None) -> str:
    """Write a captioner's graphs and the page for them; returns how weights are stored.

    title: heading of the page.
    """
    if precision == "float32" and has_graphs_for_browsers(model):
        stored = "weights as in MODEL"
        with saving(folder) as files:
            copy_model(model.files, files)
    else:
        from captioner.caption.folder import export_model, load_model

        stored = f"weights in {precision}"
        export_model(load_model(model.path), folder, precision)
    write_page(folder, title)
    return stored


def write_page(folder: Path, title: str | None = None) -> None:
    """Write the page into a folder with graphs; npm fetches `RUNTIME`. title: its heading."""
    _write_runtime(folder)
    model = ModelFolder(folder)
    graphs = open_captions(model)
    config = captioner_config(model)
    constraints = graphs.constraints(config.search)
    preprocessing = to_mapping(graphs.preprocessing)
    # Exported graphs hold their weights: then there is no file of them.
    needed = (folder / name for name in (*GRAPHS, WEIGHTS))
    files = [path for path in needed if path.is_file()]
    description = {
        "files": {path.name: path.stat().st_size for path in files},
        "words": graphs.vocabulary.words,
        "search": to_mapping(config.search),
        "preprocessing": preprocessing,
        "inputs": [*map(_stored, search_inputs(constraints, len(graphs.vocabulary)))],
        "function_words": constraints.repeatable,
        "vowel_sound": graphs.vocabulary.is_english and VOWEL_SOUND,
        "confidence": config.confidence and to_mapping(config.confidence),
    }
    write_json(folder / "captioner.json", description)
    region = {"map_shape": graphs.map_shape, **preprocessing}
    numbers = f"const REGION = {json.dumps(region)};\n"
    script = f"{numbers}{viewer_script()}\n{_static('downloads.js')}\n{_static('page.js')}"
    write_text(folder / "page.js", script)
    write_text(folder / "page.css", static_file("pages.css"))
    write_bytes(folder / "example.jpg", DEMO_PHOTO.read_bytes())
    page = _static("index.html").replace("captioner</", f"{escaped(title or 'captioner')}</")
    write_text(folder / "index.html", page)
    for name in ("captioner.js", "worker.js", "onnxruntime-web.LICENSE.txt"):
        write_text(folder / name, _static(name))
    digest = hashlib.sha256()
    worker = folder / "service_worker.js"  # An earlier export may have left one.
    for path in sorted(folder.iterdir()):
        if path.is_file() and path != worker:
            digest.update(path.name.encode() + path.read_bytes())
    kept = f"captioner-{digest.hexdigest()[:16]}"
    write_text(worker, f"const KEPT = {json.dumps(kept)};\n{_static('service_worker.js')}")


def _stored(arrays: dict[str, Array]) -> dict[str, object]:
    """Arrays as type, shape and values."""
    return {
        name: {"type": array.dtype.name, "shape": array.shape, "values": array.ravel().tolist()}
        for name, array in arrays.items()
    }


def _static(name: str) -> str:
    return read_text(_STATIC / name)


def _write_runtime(folder: Path) -> None:
    """Copy the files of `RUNTIME` that the page needs out of npm's archive."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"--page needs npm, which fetches {RUNTIME}")
    with tempfile.TemporaryDirectory() as work:
        command = [npm, "pack", RUNTIME, "--silent", "--pack-destination", work]
        packed = subprocess.run(command, capture_output=True, text=True, cwd=work)
        if packed.returncode:
            reason = (packed.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise UserError(f"npm could not fetch {RUNTIME}: {reason}")
        (fetched,) = Path(work).glob("*.tgz")
        with tarfile.open(fetched) as archive:
            for name in _RUNTIME_FILES:
                member = archive.extractfile(f"package/dist/{name}")
                assert member is not None
                write_bytes(folder / name.replace(*_SUFFIX), member.read())
