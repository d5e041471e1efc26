"""BLEU, ROUGE-L and CIDEr-D against the COCO evaluation's own scorers, to 1e-9.

Of words, and of texts with its tokeniser, which needs Java.
"""

import json
import random
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioner.evaluation.coco_metrics import DocumentFrequency, bleu, cider_d, rouge_l
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.score import evaluate_captions

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
COCO = DATA / "coco" / "captions_val2017_subset.json"

Tokens = list[str]


def assert_equal_to_coco(hypotheses: list[Tokens], references: list[list[Tokens]]) -> None:
    results = {index: [" ".join(tokens)] for index, tokens in enumerate(hypotheses)}
    truth = {index: [" ".join(each) for each in texts] for index, texts in enumerate(references)}
    corpus = Corpus(hypotheses, references)
    pairs = [(Rouge().compute_score(truth, results), rouge_l(corpus))]
    score, per_image = Bleu(4).compute_score(truth, results, verbose=0)
    pairs.append(((score, np.array(per_image).T), bleu(corpus)))
    if len(hypotheses) > 1 and any(tokens for candidates in references for tokens in candidates):
        for frequency in (None, DocumentFrequency.from_references(references)):
            pairs.append((Cider().compute_score(truth, results), cider_d(corpus, frequency)))
    for (score, per_image), ours in pairs:
        np.testing.assert_allclose(ours.scores, np.atleast_1d(score), rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours.per_image, per_image, rtol=0, atol=1e-9)


def test_long_captions_and_odd_words() -> None:
    dog, rocket = "\N{DOG FACE}", "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}"
    long = random.Random(2).choices(["a", "dog", "runs", "far"], k=10_000)
    hypotheses = [[], long, [dog, rocket, dog], ["the"] * 7]
    references = [[["a"], []], [["a", "dog", "runs", "far"] * 3, ["a"]], [[dog, dog], [rocket]]]
    assert_equal_to_coco(hypotheses, [*references, [["the", "cat"], ["the", "the", "mat"]]])


captions = st.lists(st.sampled_from(["a", "dog", "runs", "é"]), max_size=9)


@given(st.lists(st.tuples(captions, st.lists(captions, min_size=1, max_size=4)), min_size=1))
def test_any_corpus(pairs: list[tuple[Tokens, list[Tokens]]]) -> None:
    assert_equal_to_coco([pair[0] for pair in pairs], [pair[1] for pair in pairs])


NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D")


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
@pytest.mark.data
@pytest.mark.skipif(not COCO.exists(), reason="needs the real captions in ../shared/data/coco")
def test_all_real_captions_scored_against_each_other() -> None:
    """From text to scores, with the suite's tokeniser."""
    by_image: dict[int, list[str]] = defaultdict(list)
    for record in json.loads(COCO.read_text(encoding="utf-8"))["annotations"]:
        by_image[record["image_id"]].append(record["caption"])
    texts = [captions for captions in by_image.values() if len(captions) > 1]
    assert len(texts) > 4800
    captions, references = [own for own, *_ in texts], [others for _, *others in texts]
    tokenizer = PTBTokenizer()
    truth = tokenizer.tokenize(
        {n: [{"caption": text} for text in of_image] for n, of_image in enumerate(references)}
    )
    results = tokenizer.tokenize({n: [{"caption": text}] for n, text in enumerate(captions)})
    expected, columns = Bleu(4).compute_score(truth, results, verbose=0)
    for scorer in (Rouge(), Cider()):
        score, per_image = scorer.compute_score(truth, results)
        expected.append(score)
        columns.append(per_image)
    found = evaluate_captions(captions, references)
    by_image_found = found.rows()
    for name, score, column in zip(NAMES, expected, columns, strict=True):
        assert found.by_name()[name] == pytest.approx(score, abs=1e-9), name
        assert [row[name] for row in by_image_found] == pytest.approx(list(column), abs=1e-9), name
