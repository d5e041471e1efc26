"""The rewards of self-critical training."""

from itertools import chain

import numpy as np
import pytest
import torch

from captioner.caption.losses import SelfCriticalConfig
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.metrics import DocumentFrequency, cider_d
from captioner.runs.caption_task import caption_reward, content_words_worth, fluency_worth
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.vocabulary import Vocabulary

REFERENCES = [
    [["a", "dog", "runs"], ["the", "dog", "runs", "fast"]],
    [["a", "cat"]],
    [["a", "dog", "and", "a", "cat"], ["dogs"], ["a", "dog", "and", "cats"]],
]
VOCABULARY = Vocabulary(["a", "dog", "runs", "cat", "and"])  # 4 to 8
PLAIN = caption_reward(REFERENCES, VOCABULARY, SelfCriticalConfig())


def test_the_reward_is_cider_d_of_the_words_and_the_end() -> None:
    """An unknown word is none that a reference has, though references have unknown words."""
    captions = [[[4, 5, 6, 2], [4, 5, 6]], [[2], [4, 3, 7, 2]]]
    rows = torch.tensor([2, 0])
    found = PLAIN(rows, captions)
    texts = [[[*words, "<end>"] for words in image] for image in REFERENCES]
    said = [["a", "dog", "runs", "<end>"], ["a", "dog", "runs"]]
    said += [["<end>"], ["a", "<unk>", "cat", "<end>"]]
    frequency = DocumentFrequency.from_references(texts)
    expected = [
        cider_d(Corpus([words], [texts[row]]), frequency).scores[0]
        for words, row in zip(said, (2, 2, 0, 0), strict=True)
    ]
    np.testing.assert_allclose(found.flatten().numpy(), expected, rtol=1e-6)
    assert float(found[0, 0]) != float(found[0, 1])


def test_true_words_and_fluency_are_rewarded_beside_cider_d() -> None:
    captions = [[[4, 5, 6, 2], [4, 7, 5, 8, 2]], [[4, 2], [3, 4, 7, 2]]]
    pairs = [(row, caption) for row in (0, 1) for caption in captions[row]]
    # Of photo 0 "dog" and "runs" are true, "cat" is not; an unknown word is no content word.
    true_words = content_words_worth(REFERENCES, VOCABULARY)
    assert [true_words(*pair) for pair in pairs] == [2, 0, 0, 1]
    people = PeoplesNgrams([["a", "dog", "runs", "fast"], ["the", "dog", "runs"], ["a", "cat"]])
    # "a dog runs" is two captions joined. Of "a cat dog and" nobody wrote anything from "cat dog"
    # on: 3 of 5 bigrams and 3 of 4 trigrams; of "a" its end, as of both words; "<unk> a cat" has
    # two bigrams and two trigrams of its own.
    fluency = fluency_worth(people, VOCABULARY)
    assert [fluency(*pair) for pair in pairs] == pytest.approx([0, -6 / 9, -2 / 3, -4 / 7])
    config = SelfCriticalConfig(content_words_weight=0.5, fluency_weight=2.0)
    text = ["a", "cat", "dog"]
    fluency = fluency_worth(PeoplesNgrams([*chain.from_iterable(REFERENCES), text]), VOCABULARY)
    beside = torch.tensor([0.5 * true_words(*pair) + 2.0 * fluency(*pair) for pair in pairs])
    found = caption_reward(REFERENCES, VOCABULARY, config, [text])(torch.tensor([0, 1]), captions)
    expected = PLAIN(torch.tensor([0, 1]), captions) + beside.view(2, 2)
    torch.testing.assert_close(found, expected)
