"""How varied captions are, and whether they are sentences as people write them.

Devlin et al. 2015, *Language Models for Image Captioning*, section 4 (unique captions, and captions
seen in training); Shetty et al. 2017, *Speaking the Same Language*, section 5 (the vocabulary).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from captioner.evaluation.corpus import Tokens
from captioner.text.ngrams import PeoplesNgrams


def text_diversity(
    captions: Sequence[Tokens], training: Iterable[Tokens] | None = None
) -> dict[str, float]:
    """How varied C tokenised captions are, by name; shares are fractions of one.

    training: the tokenised captions that the model learned from.

    distinct_captions: different captions, word for word. seen_in_training: the share of captions
    that equal one of training, if given. vocabulary: different words. mean_length: in words.
    doubled_word: the share of captions with a word directly after itself ("a a"). repeated_2_words
    to repeated_4_words: with an n-gram that occurs twice in the caption.
    """
    sentences = [tuple(tokens) for tokens in captions]
    count = len(sentences)
    seen = {}
    if training is not None:
        known = set(map(tuple, training))
        seen["seen_in_training"] = sum(each in known for each in sentences) / count
    distinct = set(sentences)
    doubled = sum(any(one == other for one, other in pairwise(words)) for words in sentences)
    repeated, left = {"doubled_word": doubled / count}, sentences
    for n in (2, 3, 4):  # A sentence that repeats three words repeats two.
        left = [words for words in left if _repeats(words, n)]
        repeated[f"repeated_{n}_words"] = len(left) / count
    return {
        "distinct_captions": len(distinct),
        "distinct_share": len(distinct) / count,
        **seen,
        "vocabulary": len(set(chain.from_iterable(distinct))),
        "mean_length": sum(map(len, sentences)) / count,
        **repeated,
    }


def _repeats(words: tuple[str, ...], length: int) -> bool:
    ngrams = list(zip(*(words[start:] for start in range(length)), strict=False))
    return len(set(ngrams)) < len(ngrams)


def fluency(
    captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]], people: PeoplesNgrams
) -> dict[str, float]:
    """How fluent captions are, and people's captions of the same photos, the ceiling, by name.

    people: of captions that the model has not learned from. A reference that is itself in `people`
        does not vouch for its own n-grams, but the trigram model has seen it.

    fluent: the share of captions all of whose bigrams and trigrams people wrote. log_probability:
    the mean of `PeoplesNgrams.log_probability` over captions, in nats a word. misplaced_articles:
    the share of captions with "a" before a plural or a mass noun. people_fluent and so on: of
    references.
    """

    def scores(sentences: Sequence[Tokens], leave_out: bool) -> dict[str, float]:
        fluent = sum(not people.unseen(words, leave_out) for words in sentences)
        misplaced = sum(bool(people.misplaced_articles(words)) for words in sentences)
        return {
            "fluent": fluent / len(sentences),
            "log_probability": sum(map(people.log_probability, sentences)) / len(sentences),
            "misplaced_articles": misplaced / len(sentences),
        }

    ceiling = scores(list(chain.from_iterable(references)), leave_out=True)
    own = scores(captions, leave_out=False)
    return own | {f"people_{name}": score for name, score in ceiling.items()}
