"""The rewards of self-critical training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import torch
from torch import Tensor

from captioner.caption.losses import SelfCriticalConfig
from captioner.caption.reinforce import Reward
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.word_precision import content_stems
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.vocabulary import Vocabulary


def caption_reward(
    references: Sequence[Sequence[Sequence[str]]],
    vocabulary: Vocabulary,
    config: SelfCriticalConfig,
    texts: Iterable[Sequence[str]] = (),
) -> Reward:
    """CIDEr-D, and true content words and fluency where they have a weight.

    references: tokenised, of each photo. texts: tokenised captions without photos.
    """
    weighed = [(1.0, cider_reward(references, vocabulary))]
    if config.content_words_weight > 0:
        weighed.append((config.content_words_weight, content_words_reward(references, vocabulary)))
    if config.fluency_weight > 0:
        people = PeoplesNgrams([*chain.from_iterable(references), *texts])
        weighed.append((config.fluency_weight, fluency_reward(people, vocabulary)))

    def reward(rows: Tensor, captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        parts = [weight * of_kind(rows, captions) for weight, of_kind in weighed]
        return torch.stack(parts).sum(dim=0)  # (B, K)

    return reward


def content_words_reward(
    references: Sequence[Sequence[Sequence[str]]], vocabulary: Vocabulary
) -> Reward:
    """The number of a caption's content words that a reference has, less those that none has.

    Each stem counts once; see `captioner.evaluation.word_precision`.
    """
    stem_of = [content_stems([word]) if word in vocabulary else [] for word in vocabulary.words]
    known = [
        {stem for words in captions for stem in content_stems(words)} for captions in references
    ]

    def worth(row: int, caption: Sequence[int]) -> float:
        said = {stem for token in caption for stem in stem_of[token]}
        return 2.0 * len(said & known[row]) - len(said)

    def reward(rows: Tensor, captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        pairs = zip(rows.tolist(), captions, strict=True)
        return torch.tensor([[worth(row, each) for each in of_photo] for row, of_photo in pairs])

    return reward


def fluency_reward(people: PeoplesNgrams, vocabulary: Vocabulary) -> Reward:
    """Minus the share of a caption's bigrams and trigrams that nobody wrote.

    An article before a plural or a mass noun counts as two of them.
    """

    def share(caption: Sequence[int]) -> float:
        words = [vocabulary.words[token] for token in caption if token != Vocabulary.end]
        wrong = len(people.unseen(words)) + 2 * len(people.misplaced_articles(words))
        return -wrong / (2 * len(words) + 1)

    return lambda rows, captions: torch.tensor([[share(c) for c in each] for each in captions])


def cider_reward(references: Sequence[Sequence[Sequence[str]]], vocabulary: Vocabulary) -> Reward:
    """CIDEr-D against the references of the photos, as a reward.

    The end counts as a word, so that it matters whether a caption was finished.
    references: words; those outside the vocabulary still count in a reference's length.
    """
    end = vocabulary.words[Vocabulary.end]
    texts = [[[*words, end] for words in captions] for captions in references]
    frequency = DocumentFrequency.from_references(texts)

    def reward(rows: Tensor, captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        every = [caption for of_photo in captions for caption in of_photo]
        said = [[vocabulary.words[token] for token in caption] for caption in every]
        truth = [texts[row] for row in rows.tolist() for _ in captions[0]]
        scores = cider_d(Corpus.of(said, truth), frequency).per_image  # (B * K,)
        return torch.from_numpy(scores).float().view(len(captions), -1)  # (B, K)

    return reward
