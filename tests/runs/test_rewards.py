"""The rewards of self-critical training."""

from itertools import chain

import numpy as np
import pytest
import torch

from captioner.caption.losses import SelfCriticalConfig
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus
from captioner.runs.rewards import (
    caption_reward,
    cider_reward,
    content_words_reward,
    fluency_reward,
)
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.vocabulary import Vocabulary

REFERENCES = [
    [["a", "dog", "runs"], ["the", "dog", "runs", "fast"]],
    [["a", "cat"]],
    [["a", "dog", "and", "a", "cat"], ["dogs"], ["a", "dog", "and", "cats"]],
]
VOCABULARY = Vocabulary(["a", "dog", "runs", "cat", "and"])  # 4 to 8


def test_the_reward_is_cider_d_of_the_words_and_the_end() -> None:
    """An unknown word is none that a reference has, though references have unknown words."""
    captions = [[[4, 5, 6, 2], [4, 5, 6]], [[2], [4, 3, 7, 2]]]
    rows = torch.tensor([2, 0])
    found = cider_reward(REFERENCES, VOCABULARY)(rows, captions)
    texts = [[[*words, "<end>"] for words in image] for image in REFERENCES]
    said = [[["a", "dog", "runs"], ["a", "dog", "runs"]], [[], ["a", "<unk>", "cat"]]]
    ended = [[True, False], [True, True]]
    expected = [
        cider_d(
            Corpus.of([[*words, *["<end>"] * whole]], [texts[row]]),
            DocumentFrequency.from_references(texts),
        ).scores[0]
        for row, both, wholes in zip(rows.tolist(), said, ended, strict=True)
        for words, whole in zip(both, wholes, strict=True)
    ]
    np.testing.assert_allclose(found.flatten().numpy(), expected, rtol=1e-6)
    assert float(found[0, 0]) != float(found[0, 1])


def test_true_words_and_fluency_are_rewarded_beside_cider_d() -> None:
    captions = [[[4, 5, 6, 2], [4, 7, 5, 8, 2]], [[4, 2], [3, 4, 7, 2]]]
    rows = torch.tensor([0, 1])
    # Of photo 0 "dog" and "runs" are true, "cat" is not; an unknown word is no content word.
    words = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    assert torch.equal(content_words_reward(REFERENCES, VOCABULARY)(rows, captions), words)
    people = PeoplesNgrams([["a", "dog", "runs", "fast"], ["the", "dog", "runs"], ["a", "cat"]])
    # "a dog runs" is two captions joined. Of "a cat dog and" nobody wrote anything from "cat dog"
    # on: 3 of 5 bigrams and 3 of 4 trigrams; of "a" its end, as of both words; "<unk> a cat" has
    # two bigrams and two trigrams of its own.
    fluency = torch.tensor([[0.0, -6 / 9], [-2 / 3, -4 / 7]])
    assert torch.allclose(fluency_reward(people, VOCABULARY)(rows, captions), fluency)
    config = SelfCriticalConfig(content_words_weight=0.5, fluency_weight=2.0)
    plain = caption_reward(REFERENCES, VOCABULARY, SelfCriticalConfig())(rows, captions)
    people = PeoplesNgrams([*chain.from_iterable(REFERENCES), ["a", "cat", "dog"]])
    fluency = fluency_reward(people, VOCABULARY)(rows, captions)
    found = caption_reward(REFERENCES, VOCABULARY, config, [["a", "cat", "dog"]])(rows, captions)
    assert torch.allclose(found, plain + 0.5 * words + 2.0 * fluency)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_reward_takes_rows_that_were_moved_to_a_gpu() -> None:
    rows, captions = torch.tensor([2, 0]), [[[4, 5, 6, 2]], [[4, 3, 7, 2]]]
    reward = cider_reward(REFERENCES, VOCABULARY)
    assert torch.equal(reward(rows.cuda(), captions), reward(rows, captions))
