"""Captions given as strings: scores by name, image by image, as a table."""

from dataclasses import replace

import pytest

from captioner.evaluation.bleu import bleu
from captioner.evaluation.cider import cider_d
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.rouge import rouge_l
from captioner.evaluation.score import evaluate_captions
from captioner.evaluation.significance import Interval

HYPOTHESES = ["A dog runs.", "Two cats sleep on a mat"]
REFERENCES = [
    ["A brown dog runs!", "The dog, it runs."],
    ["Two cats on a mat.", "cats sleeping"],
]
WORDS = [["a", "dog", "runs"], ["two", "cats", "sleep", "on", "a", "mat"]]
REFERENCE_WORDS = [
    [["a", "brown", "dog", "runs"], ["the", "dog", "it", "runs"]],
    [["two", "cats", "on", "a", "mat"], ["cats", "sleeping"]],
]
CORPUS = Corpus.of(WORDS, REFERENCE_WORDS)


def test_every_metric_by_name() -> None:
    scores = evaluate_captions(HYPOTHESES, REFERENCES).to_dict()
    assert scores == {
        **dict(zip(("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"), bleu(CORPUS).scores, strict=True)),
        "ROUGE-L": rouge_l(CORPUS).scores[0],
        "CIDEr-D": cider_d(CORPUS).scores[0],
        "word-precision": 1.0,
        "captions with none": 0.0,
        "brevity_penalty": pytest.approx(1.0),
        "hypothesis_length": 9,
        "reference_length": 4 + 5,
        "images": 2,
        "references_without_caption": 0,
    }


def test_scores_image_by_image() -> None:
    scores = evaluate_captions(HYPOTHESES, REFERENCES, images=[7, "b.jpg"])
    first, second = scores.per_image()
    assert list(first) == [
        *("image_id", "caption", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D"),
        "word-precision",
    ]
    assert (first["image_id"], first["caption"]) == (7, "A dog runs.")
    alone = bleu(Corpus.of(WORDS[1:], REFERENCE_WORDS[1:]))
    assert second["BLEU-2"] == pytest.approx(alone.scores[1])
    assert (first["CIDEr-D"] + second["CIDEr-D"]) / 2 == pytest.approx(scores.by_name()["CIDEr-D"])


def test_the_table_reads_well() -> None:
    scores = evaluate_captions(HYPOTHESES, REFERENCES)
    lines = scores.table().splitlines()
    assert lines[0] == f"BLEU-1              {scores.by_name()['BLEU-1']:.4f}"
    assert [line[:20].strip() for line in lines] == [
        *("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D"),
        *("word-precision", "captions with none"),
        *("brevity penalty", "words", "images"),
    ]
    assert lines[-2].split() == ["words", "9", "closest", "references:", "9"]
    beside = replace(scores, intervals={"ROUGE-L": Interval(0.25, 0.75)}).table().splitlines()
    assert beside[: len(lines)] == [*lines[:4], f"{lines[4]}  [0.2500, 0.7500]", *lines[5:]]
