"""METEOR and SPICE, Java programs, run through the COCO evaluation's package.

Denkowski and Lavie 2014, *Meteor Universal: Language Specific Translation Evaluation for Any
Target Language*; Anderson et al. 2016, *SPICE: Semantic Propositional Image Caption Evaluation*.
Both come with the extra `pycocoevalcap` and receive the words of our tokeniser.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from captioner.errors import UserError
from captioner.evaluation.metric import Metric
from captioner.evaluation.ngrams import FloatArray, Tokens

METEOR_TERMS = 23
"""Counts of METEOR for each caption, against its best reference."""

_SPICE_MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")

_JAVA_OPTIONS = "-Dfile.encoding=UTF-8 -Duser.language=en -Duser.country=US"
"""Without these METEOR reads ASCII only, and writes 0,5 in locales with a decimal comma."""

# METEOR 1.5 for English, "-l en": Denkowski and Lavie 2014, table 2.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])  # exact, stem, synonym, paraphrase


def check_meteor() -> None:
    """Raise `UserError` if METEOR cannot be run: pycocoevalcap or Java is missing."""
    _check_package("METEOR")


def check_spice() -> None:
    """Raise `UserError` if SPICE cannot be run: as METEOR, or its language models are missing.

    Never downloads the models, which pycocoevalcap does unasked.
    """
    _check_package("SPICE")
    folder = _package_folder() / "spice" / "lib"
    missing = [name for name in _SPICE_MODELS if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"SPICE needs the language models of Stanford CoreNLP, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not in {folder}; "
            '"python -m pycocoevalcap.spice.get_stanford_models" downloads them (400 MB)'
        )


def meteor(captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Metric:
    """METEOR 1.5, English, of tokenised captions; arguments as in `bleu`.

    Not the mean over images; see `meteor_of_totals`.

    Raises `UserError` as `check_meteor` does, and if the program fails.
    """
    check_meteor()
    # Imported here: an extra.
    scorer_of_coco: Any = importlib.import_module("pycocoevalcap.meteor.meteor").Meteor
    lines: list[str] = []

    class Listening(scorer_of_coco):  # type: ignore[misc]
        """Keeps the counts that pass between the program's two phases."""

        def _stat(self, hypothesis_str: str, reference_list: list[str]) -> str:
            line: str = super()._stat(hypothesis_str, reference_list)
            lines.append(line)
            return line

    try:
        with _java_options():
            scorer = Listening()
    except OSError as error:
        raise UserError(f"METEOR's Java program cannot be started: {error}") from None
    try:
        _, per_image = scorer.compute_score(*_as_coco_has_them(captions, references))
        terms = np.array([[float(number) for number in line.split()] for line in lines])
        if terms.shape != (len(captions), METEOR_TERMS):
            raise ValueError("its counts are not those of METEOR 1.5")
        # As METEOR adds up: a caption that equals its reference has no chunk.
        perfect = (terms[:, 20] == 1) & (terms[:, 21:] == terms[:, :2]).all(axis=1)
        terms[perfect, 20] = 0
    except (OSError, ValueError) as error:  # It ended, or printed something other than numbers.
        raise _failed("METEOR", _end(scorer) or str(error)) from None
    finally:
        _end(scorer)
    scores = np.array(per_image, dtype=np.float64)
    return Metric(("METEOR",), scores, terms, lambda totals: meteor_of_totals(totals)[..., None])


def meteor_of_totals(totals: FloatArray) -> FloatArray:
    """METEOR (...) of the sums (..., 23) of METEOR's terms over images.

    The terms: words of caption and reference, function words of both; then for exact, stem,
    synonym and paraphrase matches each the matched content words of both and the matched function
    words of both; chunks, none in a caption that equals its reference; matched words of both.
    Denkowski and Lavie 2014, section 2.
    """
    caption_words, reference_words, caption_function, reference_function = np.moveaxis(
        totals[..., :4], -1, 0
    )
    matches = totals[..., 4:20].reshape(*totals.shape[:-1], 4, 4)  # (..., kind, whose)
    caption_matches = (_DELTA * matches[..., 0] + (1 - _DELTA) * matches[..., 2]) @ _WEIGHTS
    reference_matches = (_DELTA * matches[..., 1] + (1 - _DELTA) * matches[..., 3]) @ _WEIGHTS
    chunks, in_caption, in_reference = np.moveaxis(totals[..., 20:], -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = caption_matches / _weighted(caption_words, caption_function)
        recall = reference_matches / _weighted(reference_words, reference_function)
        mean = 1 / ((1 - _ALPHA) / precision + _ALPHA / recall)
        fragments = chunks / ((in_caption + in_reference) / 2)
        score = mean * (1 - _GAMMA * fragments**_BETA)
    return np.where((caption_matches > 0) & (reference_matches > 0), score, 0.0)


def spice(captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Metric:
    """SPICE of tokenised captions; arguments as in `bleu`.

    Raises `UserError` as `check_spice` does, and if the program fails.
    """
    check_spice()
    # Imported here: an extra.
    module: Any = importlib.import_module("pycocoevalcap.spice.spice")
    printed: list[str] = []
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            _java_options(),
            _held_back(printed),
        ):
            # By default its files stay among the installed Python packages.
            module.TEMP_DIR = module.CACHE_DIR = folder
            _, by_category = module.Spice().compute_score(*_as_coco_has_them(captions, references))
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        raise _failed("SPICE", _told(printed) or str(error)) from None
    per_image = np.array([scores["All"]["f"] for scores in by_category], dtype=np.float64)
    return Metric.mean("SPICE", per_image)


def _weighted(words: FloatArray, function_words: FloatArray) -> FloatArray:
    """A length with a lower weight for function words."""
    return _DELTA * (words - function_words) + (1 - _DELTA) * function_words


def _check_package(metric: str) -> None:
    if importlib.util.find_spec("pycocoevalcap") is None:
        raise UserError(f'{metric} needs the package pycocoevalcap: pip install "captioner[java]"')
    if shutil.which("java") is None:
        raise UserError(f"{metric} needs Java, and there is no program named java on the PATH")


def _package_folder() -> Path:
    found = importlib.util.find_spec("pycocoevalcap")
    assert found is not None  # `_check_package` found it.
    assert found.submodule_search_locations is not None
    return Path(next(iter(found.submodule_search_locations)))


def _as_coco_has_them(
    captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """References and captions, by number of the image, each caption one line of text."""
    return (
        {index: [_line(tokens) for tokens in of] for index, of in enumerate(references)},
        {index: [_line(tokens)] for index, tokens in enumerate(captions)},
    )


def _line(tokens: Tokens) -> str:
    """The words joined by spaces, without METEOR's separator of captions."""
    text = " ".join(tokens).replace("|||", " ").encode("utf-8", "replace").decode("utf-8")
    return " ".join(text.split())


@contextlib.contextmanager
def _java_options() -> Iterator[None]:
    """Make Java programs started meanwhile use UTF-8 and decimal points."""
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{before or ''} {_JAVA_OPTIONS}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = before


@contextlib.contextmanager
def _held_back(lines: list[str]) -> Iterator[None]:
    """Collect the output of programs started meanwhile into `lines`."""
    for stream in (sys.stdout, sys.stderr):  # Earlier output is not collected.
        stream.flush()
    with tempfile.TemporaryFile() as file:
        kept = [os.dup(1), os.dup(2)]
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            yield
        finally:
            for descriptor, original in enumerate(kept, start=1):
                os.dup2(original, descriptor)
                os.close(original)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()


def _end(scorer: Any) -> str:
    """End METEOR's program and return its error message, if any.

    After a failure pycocoevalcap leaves it running and its lock taken, and the scorer's deletion
    would block.
    """
    process = scorer.meteor_p
    if scorer.lock.locked():
        scorer.lock.release()
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.kill()
    process.wait()
    said = b"" if process.stderr.closed else process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    return _told(said.decode("utf-8", "replace").splitlines())


def _told(lines: Sequence[str]) -> str:
    """The line of a Java program's output that names its error, if any."""
    lines = [line.strip() for line in lines if line.strip()]
    lines = [line for line in lines if not line.startswith(("Picked up", "at "))]
    errors = [line for line in lines if "Exception" in line or "Error" in line]
    return (errors or lines or [""])[0]


def _failed(metric: str, reason: str) -> UserError:
    said = f": {reason}" if reason else ""
    return UserError(f"{metric}'s Java program failed{said}")
