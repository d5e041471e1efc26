"""METEOR and SPICE: the Java programs that come with the COCO evaluation's package.

Denkowski and Lavie 2014, *Meteor Universal: Language Specific Translation Evaluation for Any
Target Language*; Anderson et al. 2016, *SPICE: Semantic Propositional Image Caption Evaluation*.
Both come with the extra `java` and receive the words of our tokeniser.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from captioner.errors import UserError
from captioner.evaluation.corpus import FloatArray, Tokens
from captioner.evaluation.metric import Metric

_SPICE_MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")

_JAVA = ("java", "-Dfile.encoding=UTF-8", "-Duser.language=en", "-Duser.country=US")
"""Without these METEOR reads ASCII only, and writes 0,5 in locales with a decimal comma."""

# METEOR 1.5 for English, "-l en": Denkowski and Lavie 2014, table 2.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])  # exact, stem, synonym, paraphrase


def check_meteor() -> None:
    """Raise `UserError` if METEOR cannot be run: pycocoevalcap or Java is missing."""
    _package_folder("METEOR")


def check_spice() -> None:
    """Raise `UserError` if SPICE cannot be run: as METEOR, or its language models are missing.

    Never downloads the models.
    """
    folder = _package_folder("SPICE") / "spice" / "lib"
    missing = [name for name in _SPICE_MODELS if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"SPICE needs the language models of Stanford CoreNLP, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not in {folder}; "
            '"python -m pycocoevalcap.spice.get_stanford_models" downloads them (400 MB)'
        )


def meteor(captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Metric:
    """METEOR 1.5, English, of one tokenised caption an image against the image's references.

    Not the mean over images; see `meteor_of_totals`.

    Raises `UserError` as `check_meteor` does, and if the program fails.
    """
    requests = [
        " ||| ".join(["SCORE", *map(_line, of_image), _line(caption)])
        for caption, of_image in zip(captions, references, strict=True)
    ]
    command = ["-Xmx2G", "-jar", "meteor-1.5.jar", "-", "-", "-stdio", "-l", "en", "-norm"]
    printed = _run("METEOR", command, "\n".join([*requests, ""]))
    try:
        terms = np.array([[float(number) for number in line.split()] for line in printed])
        if terms.shape != (len(captions), 23):  # Against each caption's best reference.
            raise ValueError("its counts are not those of METEOR 1.5")
    except ValueError as error:
        raise _failed("METEOR", str(error)) from None
    # As METEOR adds up: a caption that equals its reference has no chunk.
    perfect = (terms[:, 20] == 1) & (terms[:, 21:] == terms[:, :2]).all(axis=1)
    terms[perfect, 20] = 0
    scores = meteor_of_totals(terms)
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
    """SPICE of one tokenised caption an image against the image's references.

    Raises `UserError` if pycocoevalcap or Java is missing, and if the program fails.
    """
    requests = [
        {"image_id": index, "test": _line(caption), "refs": list(map(_line, of_image))}
        for index, (caption, of_image) in enumerate(zip(captions, references, strict=True))
    ]
    with tempfile.TemporaryDirectory() as folder:
        given, scored = Path(folder, "captions.json"), Path(folder, "scores.json")
        given.write_text(json.dumps(requests), encoding="utf-8")
        files = [str(given), "-cache", folder, "-out", str(scored), "-subset", "-silent"]
        _run("SPICE", ["-Xmx8G", "-jar", "spice-1.0.jar", *files])
        try:
            images = json.loads(scored.read_text(encoding="utf-8"))
            by_image = {image["image_id"]: image["scores"]["All"]["f"] for image in images}
            scores = [float(by_image[index]) for index in range(len(captions))]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _failed("SPICE", f"its scores cannot be read: {error!r}") from None
    return Metric.mean("SPICE", np.array(scores))


def _weighted(words: FloatArray, function_words: FloatArray) -> FloatArray:
    """A length with a lower weight for function words."""
    return _DELTA * (words - function_words) + (1 - _DELTA) * function_words


def _package_folder(metric: str) -> Path:
    """The folder of pycocoevalcap. Raises `UserError` if the package or Java is missing."""
    found = importlib.util.find_spec("pycocoevalcap")
    if found is None or not found.submodule_search_locations:
        raise UserError(f'{metric} needs the package pycocoevalcap: pip install "captioner[java]"')
    if shutil.which("java") is None:
        raise UserError(f"{metric} needs Java, and there is no program named java on the PATH")
    return Path(found.submodule_search_locations[0])


def _line(tokens: Tokens) -> str:
    """The words joined by spaces, without METEOR's separator of captions."""
    text = " ".join(tokens).replace("|||", " ").encode("utf-8", "replace").decode("utf-8")
    return " ".join(text.split())


def _run(metric: str, command: Sequence[str], given: str = "") -> list[str]:
    """The lines that a Java program of a metric prints.

    Raises `UserError`, with the line that names its error, if it fails.
    """
    folder = _package_folder(metric) / metric.lower()
    try:
        done = subprocess.run(
            [*_JAVA, *command], input=given.encode(), cwd=folder, capture_output=True, check=False
        )
    except OSError as error:
        raise _failed(metric, str(error)) from None
    printed, errors = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
    if done.returncode != 0:
        named = re.search("^.*(?:Exception|Error).*$", errors, re.MULTILINE)
        raise _failed(metric, named[0].strip() if named else f"exit code {done.returncode}")
    return printed.splitlines()


def _failed(metric: str, reason: str) -> UserError:
    return UserError(f"{metric}'s Java program failed: {reason}")
