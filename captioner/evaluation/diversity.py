"""How varied captions are, and how many repeat captions of training.

A captioner that always writes the commonest caption can score well against references. Li et al.
2016, *A Diversity-Promoting Objective Function for Neural Conversation Models*, section 5
(distinct-1 and distinct-2); Devlin et al. 2015, *Language Models for Image Captioning: The Quirks
and What Works*, section 4 (captions that are unique, and captions seen in training); Shetty et al.
2017, *Speaking the Same Language*, section 5 (the vocabulary that captions use).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from captioner.evaluation.ngrams import Tokens


@dataclass(frozen=True)
class TextDiversity:
    """Figures over C captions; shares are fractions of one.

    captions: C. distinct_captions: different captions, word for word.
    vocabulary: different words. words: words in all.
    distinct_1, distinct_2: different words, and different pairs of neighbouring words, divided
        by `words`; None without words.
    repeated: the share of captions with a repeated n-gram, by its length: for 1 a word directly
        after itself ("a a"), for 2 to 4 an n-gram that occurs twice in the caption.
    seen_in_training: the share of captions that equal one of training; None if not given.
    """

    captions: int
    distinct_captions: int
    vocabulary: int
    words: int
    distinct_1: float | None
    distinct_2: float | None
    repeated: tuple[float, float, float, float]
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
        """The figures by name; those with a hyphen are `distinct-1`, `-2`, `repeated-1` to `-4`."""
        repeated = {f"repeated-{n}": share for n, share in enumerate(self.repeated, start=1)}
        return {
            "distinct_captions": self.distinct_captions,
            "distinct_share": self.distinct_share,
            "seen_in_training": self.seen_in_training,
            "vocabulary": self.vocabulary,
            "mean_length": self.mean_length,
            "distinct-1": self.distinct_1,
            "distinct-2": self.distinct_2,
            **repeated,
            "captions": self.captions,
        }

    def table(self) -> str:
        """The figures as lines of text, one a figure."""
        rows = [
            ("distinct captions", f"{self.distinct_captions:,} ({self.distinct_share:.4f})"),
            ("seen in training", _show(self.seen_in_training)),
            ("vocabulary", f"{self.vocabulary:,}"),
            ("mean length", f"{self.mean_length:.2f} words"),
            ("distinct-1", _show(self.distinct_1)),
            ("distinct-2", _show(self.distinct_2)),
            *((f"repeated {n}-gram", _show(share)) for n, share in enumerate(self.repeated, 1)),
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
    pairs = {pair for sentence in sentences for pair in itertools.pairwise(sentence)}
    words = sum(map(len, sentences))
    repeated = [sum(map(_stutters, sentences))]
    repeated += [sum(_repeats(sentence, n) for sentence in sentences) for n in (2, 3, 4)]
    one, two, three, four = (number / len(sentences) for number in repeated)
    return TextDiversity(
        captions=len(sentences),
        distinct_captions=len(set(sentences)),
        vocabulary=len(vocabulary),
        words=words,
        distinct_1=len(vocabulary) / words if words else None,
        distinct_2=len(pairs) / words if words else None,
        repeated=(one, two, three, four),
        seen_in_training=seen,
    )


def _stutters(words: tuple[str, ...]) -> bool:
    return any(word == following for word, following in itertools.pairwise(words))


def _repeats(words: tuple[str, ...], length: int) -> bool:
    """Whether an n-gram of this length occurs twice; the two may overlap."""
    ngrams = list(zip(*(words[start:] for start in range(length)), strict=False))
    return len(set(ngrams)) < len(ngrams)


def _show(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.4f}"
