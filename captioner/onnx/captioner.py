"""A captioner of ONNX graphs: what a `Captioner` says and shows, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from pydantic import Field

from captioner.caption.confidence import Confidence
from captioner.caption.photos import PhotoCaptioner
from captioner.decoding.options import ORDER, SearchOptions
from captioner.errors import UserError
from captioner.files import read_json
from captioner.onnx import DESCRIPTION, NGRAMS, load
from captioner.onnx.search import Array, Hypothesis, Rules, StepOutput, beam_search
from captioner.schema import Config, from_mapping
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing

_CHUNK = 2  # Photos that are encoded at a time, whose feature maps a CPU's caches hold.


class Description(Config):
    """`captioner.json` of an ONNX folder."""

    format: Literal["captioner-onnx-1"]
    captioner: str = Field(description="version that wrote it")
    opset: int
    precision: str = Field(description="in which weights are stored")
    files: dict[str, int] = Field(description="their bytes")
    preprocessing: Preprocessing
    map_shape: tuple[int, int] = Field(strict=False)
    search: SearchOptions
    words: list[str]
    repeatable: list[int] = Field(description="tokens exempt from repeat_distance")
    has_ngrams: bool
    confidence: Confidence | None
    card: str


class OnnxCaptioner(PhotoCaptioner):
    """Captions photos as `Captioner` does; see `captioner.onnx.load`. It draws no samples."""

    def __init__(self, folder: Path) -> None:
        path = folder / DESCRIPTION
        content = read_json(path, "description of an exported captioner")
        self.folder = folder
        self.description = description = from_mapping(Description, content, str(path))
        self.preprocessing = description.preprocessing
        self.search = description.search
        self.confidence = description.confidence
        self.vocabulary = Vocabulary.from_json({"words": description.words}, str(path))
        size = len(self.vocabulary)
        self._repeatable = np.isin(np.arange(size), description.repeatable)  # (V,)
        self.ngrams = _ngrams(folder, size) if description.has_ngrams else None
        self._encoder, self._start, self._step = (
            _session(folder / f"{name}.onnx") for name in ("encoder", "start", "step")
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Only the folder is pickled: every process loads the graphs itself."""
        return load, (self.folder.resolve(),)

    @property
    def map_shape(self) -> tuple[int, int]:
        """See `PhotoCaptioner`."""
        return self.description.map_shape

    def encode(self, pixels: Array) -> Array:
        """See `PhotoCaptioner`."""
        chunks = [pixels[first : first + _CHUNK] for first in range(0, len(pixels), _CHUNK)]
        return np.concatenate([self._encoder.run(None, {"pixels": each})[0] for each in chunks])

    def find_hypotheses(
        self, annotations: Array, search: SearchOptions, generator: Any = None
    ) -> list[list[Hypothesis]]:
        """See `PhotoCaptioner`. Raises `UserError` for options of sampling."""
        if search.sample:
            raise UserError("a captioner of ONNX graphs does not sample")
        values, keys, hidden, cell = self._start.run(None, {"annotations": annotations})
        memory = {"values": values, "keys": keys}

        def step(tokens: Array, state: Mapping[str, Array]) -> StepOutput:
            inputs = {"tokens": tokens, **memory, **state}
            terms, weights, hidden, cell = self._step.run(None, inputs)
            return terms, weights, {"hidden": hidden, "cell": cell}

        rules = Rules(search, self._repeatable, self.ngrams)
        state = {"hidden": hidden, "cell": cell}
        return beam_search(step, state, len(annotations), rules)


def _session(path: Path) -> Any:
    """A graph, ready to run on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # Errors, not the remarks about its own optimisations.
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises many types of errors for damaged files.
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _ngrams(folder: Path, size: int) -> Array:
    """The keys (N,) of the n-grams of tokens, sorted; see `captioner.decoding.constraints`."""
    try:
        ngrams = np.fromfile(folder / NGRAMS, "<u2").reshape(-1, ORDER).astype(np.int64)
    except (OSError, ValueError):
        reason = "is not there whole; export the captioner again"
        raise UserError(f"{folder / NGRAMS} {reason}") from None
    return np.asarray(ngrams @ size ** np.arange(ORDER - 1, -1, -1))  # (N, ORDER) -> (N,)
