"""METEOR and SPICE, by the classes of the COCO evaluation's package, which run Java programs.

Denkowski and Lavie 2014, *Meteor Universal: Language Specific Translation Evaluation for Any
Target Language*; Anderson et al. 2016, *SPICE: Semantic Propositional Image Caption Evaluation*.
Both come with the extra `java` and receive the words of our tokeniser.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from captioner.errors import UserError
from captioner.evaluation.corpus import Corpus, Metric, Tokens

_JAVA_OPTIONS = "-Dfile.encoding=UTF-8 -Duser.language=en -Duser.country=US"
"""Without these METEOR reads ASCII only, and hangs in locales with a decimal comma."""


def check_java_metric(metric: str) -> None:
    """Refuse METEOR or SPICE where its package, Java or its language models are missing.

    Never downloads the models, of 400 MB.
    """
    package = importlib.util.find_spec("pycocoevalcap")
    if shutil.which("java") is None or package is None or not package.submodule_search_locations:
        raise UserError(
            f'{metric} needs the package pycocoevalcap (pip install "captioner[java]") and the '
            "program java"
        )
    library = Path(package.submodule_search_locations[0], "spice", "lib")
    models = library / "stanford-corenlp-3.6.0-models.jar"
    if metric == "SPICE" and not os.path.isfile(models):
        raise UserError(
            f"SPICE needs {models}; "
            '"python -m pycocoevalcap.spice.get_stanford_models" downloads it (400 MB)'
        )


def meteor(corpus: Corpus) -> Metric:
    """METEOR 1.5, English: the program's own sum, which cannot be resampled."""
    from pycocoevalcap.meteor.meteor import Meteor

    options = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = _JAVA_OPTIONS
    try:
        scorer = Meteor()  # Starts the program.
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
        if options is not None:
            os.environ["JAVA_TOOL_OPTIONS"] = options
    try:
        score, per_image = _score("METEOR", scorer, corpus)
    finally:
        for stream in (scorer.meteor_p.stdin, scorer.meteor_p.stdout, scorer.meteor_p.stderr):
            with contextlib.suppress(OSError):
                stream.close()
        if scorer.lock.locked():  # After an error; its destructor would wait for it for ever.
            scorer.lock.release()
    no_terms = np.empty((corpus.images, 0))
    return Metric(("METEOR",), np.array(per_image), no_terms, lambda totals: np.array([score]))


def spice(corpus: Corpus) -> Metric:
    """SPICE: the mean F-measure of scene graphs."""
    from pycocoevalcap.spice.spice import Spice

    _, per_image = _score("SPICE", Spice(), corpus)
    return Metric.mean("SPICE", np.array([each["All"]["f"] for each in per_image]))


def _score(metric: str, scorer: Any, corpus: Corpus) -> tuple[float, list[Any]]:
    """The score and the scores (I,) by a class of the package."""

    def line(words: Tokens) -> str:  # METEOR separates captions by |||, and reads lines.
        return " ".join(" ".join(words).replace("|||", " ").split())

    captions = {image: [line(words)] for image, words in enumerate(corpus.captions)}
    truth = {image: [line(words) for words in each] for image, each in enumerate(corpus.references)}
    try:
        score, per_image = scorer.compute_score(truth, captions)
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        raise UserError(f"{metric}'s Java program failed: {error}") from None
    return float(score), list(per_image)
