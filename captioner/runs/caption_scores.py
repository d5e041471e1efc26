"""Scores of captions in training: rewards and validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from captioner.data.example import Example
from captioner.data.parallel import read_lines
from captioner.evaluation.coco_metrics import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.score import evaluate_captions
from captioner.evaluation.wording import content_stems
from captioner.models.caption_losses import SelfCriticalConfig
from captioner.runs.captioning_recipe import SCORES
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary

RESULTS = "results.json"
"""In a run's folder: captions of the validation photos by the best model, in COCO's format."""

REFERENCES = "references.json"
"""In a run's folder: people's captions of these photos, in COCO's format."""


def scores_of(captions: Sequence[str], examples: Sequence[Example]) -> dict[str, float]:
    """Scores of one caption a photo against the photos' own, by name; see `SCORES`.

    `exact match` is the share of captions that equal one of their references word for word.
    """
    metrics = evaluate_captions(captions, [example.captions for example in examples]).to_dict()
    scores = {name: metrics[name] for name in (*SCORES[:-1], "brevity_penalty")}
    # As the words stand, and as the text reads: "a man 's hat" and "a man's hat".
    exact = [
        caption.split() in example.words or tokenize(caption) in example.words
        for caption, example in zip(captions, examples, strict=True)
    ]
    scores["exact match"] = sum(exact) / len(exact)
    return scores


WordReward = Callable[[int, Sequence[int]], float]
"""The reward of a caption, as word indices, of the photo of a row."""


@dataclass
class CaptionReward:
    """CIDEr-D, and true content words and fluency where they have a weight.

    The end counts as a word of CIDEr-D, so that it matters whether a caption was finished.
    references: tokenised, of each photo, also words outside the vocabulary. texts: a file of
    captions without photos, one a line, which fluency is compared with too.
    """

    references: Sequence[Sequence[Sequence[str]]]
    vocabulary: Vocabulary
    config: SelfCriticalConfig
    texts: Path | None = None

    def __post_init__(self) -> None:
        end = self.vocabulary.words[Vocabulary.end]
        self._truth = [[[*words, end] for words in captions] for captions in self.references]
        self._frequency = DocumentFrequency.from_references(self._truth)
        self._weighed: list[tuple[float, WordReward]] = []
        true_words, fluency = self.config.content_words_weight, self.config.fluency_weight
        if true_words > 0:
            false_word = self.config.false_word_weight
            reward = content_words_reward(self.references, self.vocabulary, false_word)
            self._weighed.append((true_words, reward))
        if fluency > 0:
            lines = [] if self.texts is None else map(tokenize, read_lines(self.texts))
            people = PeoplesNgrams([*chain.from_iterable(self.references), *lines])
            self._weighed.append((fluency, fluency_reward(people, self.vocabulary)))

    def __call__(self, rows: Tensor, captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        """Rewards (B, K) of K captions of each photo of the rows (B,)."""
        photos = zip(rows.tolist(), captions, strict=True)
        pairs = [(row, caption) for row, of_photo in photos for caption in of_photo]
        words = [[self.vocabulary.words[token] for token in caption] for _, caption in pairs]
        corpus = Corpus(words, [self._truth[row] for row, _ in pairs])
        rewards = torch.from_numpy(cider_d(corpus, self._frequency).per_image).float()  # (B * K,)
        for weight, reward in self._weighed:
            rewards += weight * torch.tensor([reward(row, caption) for row, caption in pairs])
        return rewards.view(len(captions), -1)  # (B, K)


def content_words_reward(
    references: Sequence[Sequence[Sequence[str]]], vocabulary: Vocabulary, false_word: float
) -> WordReward:
    """The content stems of a caption that a reference has, less `false_word` for each other."""
    stem_of = [content_stems([word]) if word in vocabulary else [] for word in vocabulary.words]
    known = [{s for words in captions for s in content_stems(words)} for captions in references]

    def reward(row: int, caption: Sequence[int]) -> float:
        stems = {stem for token in caption for stem in stem_of[token]}
        true = len(stems & known[row])
        return true - false_word * (len(stems) - true)

    return reward


def fluency_reward(people: PeoplesNgrams, vocabulary: Vocabulary) -> WordReward:
    """Minus the share of a caption's bigrams and trigrams that nobody wrote.

    An article before a plural or a mass noun counts as two of them.
    """

    def reward(row: int, caption: Sequence[int]) -> float:
        words = [vocabulary.words[token] for token in caption if token != Vocabulary.end]
        wrong = len(people.unseen(words)) + 2 * len(people.misplaced_articles(words))
        return -wrong / (2 * len(words) + 1)

    return reward
