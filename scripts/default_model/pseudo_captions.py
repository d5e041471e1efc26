"""Captions for photos that nobody captioned: retrieved, then chosen by consensus.

A linear map from what the teachers say of a photo (`global_features`) to the words of its captions
is learned on the photos that have captions (ridge regression onto a latent semantic space,
Deerwester et al. 1990). For another photo, captions near its image in that space are retrieved from
captions without photos, those that name a thing which the detector does not see are dropped, and of
the rest the ones that agree most with the others are kept (Devlin et al. 2015, *Exploring Nearest
Neighbor Approaches for Image Captioning*).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from nltk.stem.snowball import SnowballStemmer
from torch import Tensor

from captioner.data.parallel import read_lines
from captioner.data.synonyms import COCO_SYNONYMS, read_synonyms
from captioner.text.languages import FUNCTION_WORDS
from captioner.text.tokenizer import tokenize

DIMENSIONS = 256
"""Of the latent space, at most."""

RETRIEVED = 80
"""Captions of which a consensus is sought."""

RIDGE = 1.0
"""Of the regression from photos to words; features have deviation 1."""

UNSEEN_BELOW = 0.2
"""A thing whose best score is lower is taken not to be in the photo."""

_EASILY_SEEN = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, cat, dog, horse,
sheep, cow, elephant, bear, zebra, giraffe, skis, snowboard, surfboard, pizza, toilet,
bed, laptop, tv, umbrella, kite, stop sign, fire hydrant, tennis racket, traffic light,
teddy bear
"""
"""Things that the detector rarely misses."""


def read_captions(file: Path) -> list[list[str]]:
    """The captions of 6 to 20 words in a text file, one a line, in words; each once.

    Raises `UserError` as `read_lines` does.
    """
    texts = dict.fromkeys(line.strip().rstrip(",") for line in read_lines(file))
    return [words for words in map(tokenize, texts) if 6 <= len(words) <= 20]


class WordSpace:
    """Captions as vectors: the stems of their content words, weighed by rarity, in fewer numbers.

    stems: of the columns. weights (W,): inverse document frequencies. basis (W, 256).
    """

    def __init__(self, captions: Sequence[Sequence[str]], least: int = 20) -> None:
        stemmer = SnowballStemmer("english")
        self._stem_of: dict[str, str] = {}
        for word in {word for words in captions for word in words}:
            if word not in FUNCTION_WORDS:
                self._stem_of[word] = stemmer.stem(word)
        frequency = Counter(stem for words in captions for stem in self.stems(words))
        kept = [stem for stem, count in frequency.items() if count >= least]
        self._column = {stem: column for column, stem in enumerate(kept)}
        counts = torch.tensor([float(frequency[stem]) for stem in kept])
        self.weights = (len(captions) / counts).log()  # (W,)
        gram = torch.zeros(len(kept), len(kept))
        for start in range(0, len(captions), 10_000):
            part = self._counts(captions[start : start + 10_000])  # (N, W)
            gram += part.T @ part
        self.basis = torch.linalg.eigh(gram).eigenvectors[:, -DIMENSIONS:]  # (W, 256)

    def stems(self, words: Sequence[str]) -> set[str]:
        """The stems of a caption's content words that are known."""
        return {self._stem_of[word] for word in words if word in self._stem_of}

    def _counts(self, captions: Sequence[Sequence[str]]) -> Tensor:
        rows = torch.zeros(len(captions), len(self._column))
        for row, words in enumerate(captions):
            columns = [self._column[stem] for stem in self.stems(words) if stem in self._column]
            rows[row, columns] = self.weights[columns]
        return rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-6)  # (N, W)

    def __call__(self, captions: Sequence[Sequence[str]]) -> Tensor:
        """N captions in words -> (N, 256), of length 1 where a word is known."""
        parts = [
            self._counts(captions[start : start + 10_000]) @ self.basis
            for start in range(0, len(captions), 10_000)
        ]
        vectors = torch.cat(parts)  # (N, 256)
        return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-6)


def regress(features: Tensor, targets: Tensor, weights: Tensor, ridge: float) -> tuple[Tensor, ...]:
    """Ridge regression of targets (N, E) on features (N, F), photos weighed (N,).

    Returns mean and deviation of the features (F,), the map (F, E) and the mean target (E,).
    """
    share = weights / weights.sum()
    mean = (share[:, None] * features).sum(dim=0)  # (F,)
    deviation = (share[:, None] * (features - mean).square()).sum(dim=0).sqrt().clamp(min=0.02)
    centre = (share[:, None] * targets).sum(dim=0)  # (E,)
    standard = ((features - mean) / deviation).double()  # (N, F)
    weighed = standard * share[:, None]  # (N, F)
    gram = standard.T @ weighed + ridge * torch.eye(features.shape[1], dtype=torch.float64)
    solution = torch.linalg.solve(gram, weighed.T @ (targets - centre).double())
    return mean, deviation, solution.float(), centre


def things_named(captions: Sequence[Sequence[str]], classes: Sequence[str]) -> Tensor:
    """Which of the easily seen things each of N captions names: (N, 80), 0 or 1."""
    synonyms = read_synonyms(COCO_SYNONYMS)
    seen = {name.strip() for name in _EASILY_SEEN.split(",")}
    column = {name: n for n, name in enumerate(classes) if name in seen}
    named = torch.zeros(len(captions), len(classes))
    for row, words in enumerate(captions):
        for mention in synonyms.mentions(words):
            if mention.category in column:
                named[row, column[mention.category]] = 1
    return named


def agreement(captions: Sequence[Sequence[str]]) -> Tensor:
    """How alike each of M captions is to the others, by words and pairs of words: (M,)."""
    grams = [Counter([*words, *pairwise(words)]) for words in captions]
    frequency = Counter(gram for counts in grams for gram in counts)
    column = {gram: n for n, gram in enumerate(g for g, count in frequency.items() if count > 1)}
    rows = torch.zeros(len(captions), max(1, len(column)))
    for row, counts in enumerate(grams):
        for gram, count in counts.items():
            if gram in column:
                rows[row, column[gram]] = count * (1.0 if isinstance(gram, str) else 1.5)
    lengths = torch.tensor([float(len(words)) for words in captions])
    similar = rows @ rows.T / (lengths[:, None] * lengths).sqrt()
    return (similar.sum(dim=1) - similar.diagonal()) / max(1, len(captions) - 1)


def retrieve(
    predicted: Tensor,
    things: Tensor,
    captions: Sequence[list[str]],
    vectors: Tensor,
    named: Tensor,
    count: int,
) -> list[list[list[str]]]:
    """For photos whose words are predicted (N, 256), `count` captions each, the best first.

    things: best scores (N, 80). vectors (M, 256), named (M, 80): of the M captions.
    """
    chosen = []
    unseen = (things < UNSEEN_BELOW).float()  # (N, 80)
    for row in range(len(predicted)):
        likeness = vectors @ predicted[row] / predicted[row].norm().clamp(min=1e-6)  # (M,)
        likeness -= named @ unseen[row]
        best = likeness.topk(min(RETRIEVED, len(captions)))
        group = [captions[index] for index in best.indices.tolist()]
        order = (agreement(group) + best.values).argsort(descending=True)[:count]
        chosen.append([group[index] for index in order.tolist()])
    return chosen


class Finder:
    """Finds captions for photos from what the teachers say of them.

    features: of N photos with captions (N, F). captions: theirs, each in words. texts: captions
    without photos, each in words. classes: names of the detector's things.
    """

    def __init__(
        self,
        features: Tensor,
        captions: Sequence[Sequence[Sequence[str]]],
        texts: Sequence[list[str]],
        classes: Sequence[str],
    ) -> None:
        self.space = WordSpace([*texts, *(words for each in captions for words in each)])
        self.texts = texts
        self.vectors = self.space(texts)  # (M, 256)
        self.named = things_named(texts, classes)  # (M, 80)
        targets = torch.stack([self.space(each).mean(dim=0) for each in captions])  # (N, 256)
        counts = torch.tensor([float(len(each)) for each in captions]).clamp(max=5)  # (N,)
        self.map = regress(features, targets, counts, RIDGE)

    def __call__(self, features: Tensor, count: int) -> list[list[list[str]]]:
        """Photos (P, F), the best scores of things (P, 80) last -> `count` captions each."""
        mean, deviation, solution, centre = self.map
        predicted = (features - mean) / deviation @ solution + centre  # (P, 256)
        things = features[:, -self.named.shape[1] :]  # (P, 80)
        return retrieve(predicted, things, self.texts, self.vectors, self.named, count)
