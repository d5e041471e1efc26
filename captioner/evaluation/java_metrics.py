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
from captioner.evaluation.corpus import Tokens
from captioner.evaluation.metric import Metric

_SPICE_MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")

_JAVA = ("java", "-Dfile.encoding=UTF-8", "-Duser.language=en", "-Duser.country=US")
"""Without these METEOR reads ASCII only, and writes 0,5 in locales with a decimal comma."""


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

    Not the mean over images but the program's own sum, so it has no terms to resample.

    Raises `UserError` as `check_meteor` does, and if the program fails.
    """
    requests = [
        " ||| ".join(["SCORE", *map(_line, of_image), _line(caption)])
        for caption, of_image in zip(captions, references, strict=True)
    ]
    command = ["-Xmx2G", "-jar", "meteor-1.5.jar", "-", "-", "-stdio", "-l", "en", "-norm"]
    counts = _run("METEOR", command, "\n".join([*requests, ""]))
    printed = _run("METEOR", command, " ||| ".join(["EVAL", *counts]) + "\n")
    try:
        *per_image, score = map(float, printed)
    except ValueError as error:
        raise _failed("METEOR", str(error)) from None
    if len(per_image) != len(captions):
        raise _failed("METEOR", f"{len(per_image)} scores of {len(captions)} captions")
    no_terms = np.empty((len(captions), 0))
    return Metric(("METEOR",), np.array(per_image), no_terms, lambda totals: np.array([score]))


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
