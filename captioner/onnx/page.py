"""A static page that captions photos in the browser, with the ONNX folder beside it."""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from captioner.caption.confidence import LEAST_TRUE
from captioner.errors import UserError
from captioner.files import read_bytes, read_text, write_bytes, write_json, write_text
from captioner.model_folders import (
    GRAPHS,
    NGRAMS,
    WEIGHTS,
    StoredTensor,
    complete_folder,
    has_graphs,
    kind_of,
    weights_header,
)
from captioner.onnx.captioner import OnnxCaptioner
from captioner.onnx.graph_file import external_weights
from captioner.onnx.graphs import search_inputs
from captioner.onnx.stored_weights import STORED
from captioner.render.page import DOUBTFUL, static_file, viewer_script
from captioner.schema import to_mapping

RUNTIME = "onnxruntime-web@1.22.0"  # Runs the graphs in the browser. MIT licence.
_RUNTIME_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
_SUFFIX = ".mjs", ".js"  # Of scripts, there and here: servers may not know the first.

_STATIC = Path(__file__).parent / "static"


def has_graphs_for_browsers(folder: Path) -> bool:
    """Whether a page can have a captioner's graphs: browsers read weights at the graphs' offsets.

    Another tool may have saved the weights again, at other offsets.
    """
    if kind_of(folder) != "captioner" or not has_graphs(folder):
        return False
    folder = complete_folder(folder)
    tensors = weights_header(folder / WEIGHTS)[1] if (folder / WEIGHTS).is_file() else {}
    external: dict[str, StoredTensor] = {}
    for name in GRAPHS:
        external |= external_weights(folder / name, read_bytes(folder / name, "graph"))
    return all(external[name] == tensors.get(name.removesuffix(STORED)) for name in external)


def write_page(folder: Path) -> None:
    """Write the page into a folder with graphs; npm fetches `RUNTIME`."""
    _write_runtime(folder)
    model = OnnxCaptioner(folder)
    if model.ngrams is not None:
        write_bytes(folder / NGRAMS, model.ngrams.astype("<i8").tobytes())
    preprocessing = to_mapping(model.preprocessing)
    # Exported graphs hold their weights: then there is no file of them.
    needed = (folder / name for name in (*GRAPHS, NGRAMS, WEIGHTS))
    files = [path for path in needed if path.is_file()]
    description = {
        "files": {path.name: path.stat().st_size for path in files},
        "words": model.vocabulary.words,
        "search": to_mapping(model.search),
        "preprocessing": preprocessing,
        "inputs": _inputs(model),
        "function_words": model.constraints(model.search).repeatable,
        "confidence": model.confidence and to_mapping(model.confidence),
        "least_true": LEAST_TRUE,
    }
    write_json(folder / "captioner.json", description)
    region = {"map_shape": model.map_shape, **preprocessing}
    numbers = f"const REGION = {json.dumps(region)}, DOUBTFUL = {DOUBTFUL};\n"
    script = f"{numbers}{viewer_script()}\n{_static('page.js')}"
    write_text(folder / "page.js", script)
    styles = [static_file("viewer.css"), static_file("page.css"), _static("page.css")]
    write_text(folder / "page.css", "".join(styles))
    for name in ("index.html", "captioner.js", "worker.js", "onnxruntime-web.LICENSE.txt"):
        write_text(folder / name, _static(name))
    digest = hashlib.sha256()
    worker = folder / "service_worker.js"  # An earlier export may have left one.
    for path in sorted(folder.iterdir()):
        if path.is_file() and path != worker:
            digest.update(path.name.encode() + path.read_bytes())
    kept = f"captioner-{digest.hexdigest()[:16]}"
    write_text(worker, f"const KEPT = {json.dumps(kept)};\n{_static('service_worker.js')}")


def _inputs(model: OnnxCaptioner) -> dict[str, Any]:
    """The arrays of `search_inputs` as type, shape and values, without the n-grams."""
    constraints = replace(model.constraints(model.search), ngrams=None)
    arrays = search_inputs(constraints, len(model.vocabulary))
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
