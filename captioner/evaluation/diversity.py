"""How varied captions are, and how many repeat captions of training.

A captioner that always writes the commonest caption can score well against references. Devlin et
al. 2015, *Language Models for Image Captioning: The Quirks and What Works*, section 4 (captions
that are unique, and captions seen in training); Shetty et al. 2017, *Speaking the Same Language*,
section 5 (the vocabulary that captions use).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from captioner.evaluation.corpus import Tokens


@dataclass(frozen=True)
class TextDiversity:
    """Figures over C captions; shares are fractions of one.

    captions: C. distinct_captions: different captions, word for word.
    vocabulary: different words. words: words in all.
    repeated: the share of captions with a repeated n-gram, by its length: for 1 a word directly
        after itself ("a a"), for 2 to 4 an n-gram that occurs twice in the caption.
    seen_in_training: the share of captions that equal one of training; None if not given.
    """

    captions: int
    distinct_captions: int
    vocabulary: int
    words: int
    repeated: tuple[float, ...]
    seen_in_training: float | None

    @property
    def distinct_share(self) -> float:
        """`distinct_captions` as a share of all."""
        return self.distinct_captions / self.captions

    @property
    def mean_length(self) -> float:
        """Words a caption."""
        return self.words / self.captions

    def as_dict(self) -> dict[str, float | None]:
        """The figures by name; `repeated` as `repeated-1` to `repeated-4`."""
        repeated = {f"repeated-{n}": share for n, share in enumerate(self.repeated, start=1)}
        return {
            "distinct_captions": self.distinct_captions,
            "distinct_share": self.distinct_share,
            "seen_in_training": self.seen_in_training,
            "vocabulary": self.vocabulary,
            "mean_length": self.mean_length,
            **repeated,
            "captions": self.captions,
        }

    def table(self) -> str:
        """The figures as lines of text, one a figure."""
        seen = "-" if self.seen_in_training is None else f"{self.seen_in_training:.4f}"
        rows = [
            ("distinct captions", f"{self.distinct_captions:,} ({self.distinct_share:.4f})"),
            ("seen in training", seen),
            ("vocabulary", f"{self.vocabulary:,}"),
            ("mean length", f"{self.mean_length:.2f} words"),
            *((f"repeated {n}-gram", f"{share:.4f}") for n, share in enumerate(self.repeated, 1)),
            ("captions", f"{self.captions:,}"),
        ]
        return "\n".join(f"{name:<20}{value}" for name, value in rows)


def text_diversity(
    captions: Sequence[Tokens], training: Iterable[Tokens] | None = None
) -> TextDiversity:
    """Measure how varied tokenised captions are.

    captions: one or more, which may be empty.
    training: the tokenised captions that the model learned from.
    """
    sentences = [tuple(tokens) for tokens in captions]
    seen = None
    if training is not None:
        known = {tuple(tokens) for tokens in training}
        seen = sum(sentence in known for sentence in sentences) / len(sentences)
    vocabulary = {word for sentence in sentences for word in sentence}
    repeated = [sum(_repeats(sentence, n) for sentence in sentences) for n in range(1, 5)]
    return TextDiversity(
        captions=len(sentences),
        distinct_captions=len(set(sentences)),
        vocabulary=len(vocabulary),
        words=sum(map(len, sentences)),
        repeated=tuple(number / len(sentences) for number in repeated),
        seen_in_training=seen,
    )


def _repeats(words: tuple[str, ...], length: int) -> bool:
    """Whether an n-gram of this length occurs twice, which may overlap; a word: after itself."""
    if length == 1:
        return any(word == following for word, following in itertools.pairwise(words))
    ngrams = list(zip(*(words[start:] for start in range(length)), strict=False))
    return len(set(ngrams)) < len(ngrams)
