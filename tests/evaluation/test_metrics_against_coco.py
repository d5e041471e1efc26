"""BLEU, ROUGE-L and CIDEr-D against the COCO evaluation's own scorers, to 1e-9."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from captioner.evaluation.coco_metrics import DocumentFrequency, bleu, cider_d, rouge_l
from captioner.evaluation.corpus import Corpus

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
