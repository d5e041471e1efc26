"""Scores of a captioner's validation, and whether its run gained anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from captioner.data.example import Example
from captioner.errors import counted
from captioner.evaluation import CONFIDENCE
from captioner.evaluation.results_file import read_results
from captioner.evaluation.score import evaluate_captions
from captioner.evaluation.significance import FEW_IMAGES, compare
from captioner.runs.captioning_recipe import SCORES
from captioner.text.tokenizer import tokenize

RESULTS, START_RESULTS = "results.json", "start_results.json"
"""In a run's folder: captions of the validation photos in COCO's format, by the best model and by
the one that the run starts from."""


def scores_of(captions: Sequence[str], examples: Sequence[Example]) -> dict[str, float]:
    """Scores of one caption a photo against the photos' own, by name; see `SCORES`.

    `exact match` is the share of captions that equal one of their references word for word.
    """
    references = [example.captions for example in examples]
    metrics = evaluate_captions(list(captions), references).to_dict()
    scores = {name: metrics[name] for name in (*SCORES[:-1], "brevity_penalty")}
    # As the words stand, and as the text reads: "a man 's hat" and "a man's hat".
    exact = [
        caption.split() in example.words or tokenize(caption) in example.words
        for caption, example in zip(captions, examples, strict=True)
    ]
    scores["exact match"] = sum(exact) / len(exact)
    return scores


def doubt_of_gain(folder: Path, validation: Sequence[Example], score: str) -> str:
    """A sentence if chance explains what a run's best epoch gained over its start; else ""."""
    if not os.path.exists(folder / START_RESULTS):
        return ""
    references = [example.captions for example in validation]
    metrics = {}
    for file in (RESULTS, START_RESULTS):
        captions = read_results(folder / file)
        in_order = [captions[example.name] for example in validation]
        metrics[file] = evaluate_captions(in_order, references).metrics
    comparisons = compare(metrics[RESULTS], metrics[START_RESULTS])
    name = score if score in comparisons else "CIDEr-D"
    gain, words = comparisons[name], comparisons["word-precision"]
    is_few = len(references) < FEW_IMAGES
    if gain["difference"] > 0 and gain["p_bootstrap"] < 1 - CONFIDENCE and not is_few:
        return ""
    evidence = "too few photos for a test" if is_few else f"p {gain['p_bootstrap']:.2f}"
    return (
        f"nothing was gained that {counted(len(references), 'validation photo')} can show: "
        f"{name} {gain['second']:.3f} at the start and {gain['first']:.3f} now ({evidence}), "
        f"true words {words['second']:.3f} and {words['first']:.3f}"
    )
