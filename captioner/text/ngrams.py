"""People's n-grams: the words that captions have in a row, and whether a sentence keeps to them.

Articles, plurals and slips are found in English captions only; n-grams are of any language.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from captioner.text.languages import FUNCTION_WORDS, MODIFIERS, is_noun
from captioner.text.vocabulary import Vocabulary

START, END = "<start>", "<end>"
"""Before the first word and after the last, as in `captioner.text.vocabulary`."""

DISCOUNT = 0.75
"""Subtracted from every count, for n-grams that were not seen (Chen and Goodman 1999)."""

LEAST_COUNT, LEAST_SHARE = 20, 0.03
"""A noun that ends a phrase `LEAST_COUNT` times, and has "a" before it in a smaller share of them
than `LEAST_SHARE`, is a plural or a mass noun."""

RARE_SHARE = 0.02
"""A preposition in a smaller share of the times that one stands before an article and a noun is
taken for a slip: "in the beach" for "on the beach"."""

_ARTICLES = ("a", "an", "the")
_QUANTITIES = {"few", "lot", "bunch", "variety", "pair", "couple", "half", "dozen"}

Ngram = tuple[str, ...]


def ngrams(words: Sequence[str], order: int, starts: int = 1) -> Iterator[Ngram]:
    """The n-grams of a tokenised sentence with `START` before it and `END` after it."""
    padded = (*(START,) * starts, *words, END)
    return zip(*(padded[first:] for first in range(order)), strict=False)


class PeoplesNgrams:
    """The words, bigrams and trigrams of people's captions, counted.

    captions: from `tokenize`. Equal ones count once, and those with `misplaced_articles` not at
        all.
    """

    def __init__(self, captions: Iterable[Sequence[str]]) -> None:
        different = set(map(tuple, captions))
        self._plurals = _plurals(different)
        self._captions = {words for words in different if not self.misplaced_articles(words)}
        self.counts = {
            order: Counter(ngram for words in self._captions for ngram in ngrams(words, order))
            for order in (2, 3)
        }

    def unseen(self, words: Sequence[str], leave_out: bool = False) -> list[Ngram]:
        """The bigrams and trigrams of a sentence that nobody wrote.

        leave_out: a sentence that is among the captions does not vouch for itself.
        """
        own = leave_out and tuple(words) in self._captions
        return [
            ngram
            for order, counts in self.counts.items()
            for ngram, times in Counter(ngrams(words, order)).items()
            if counts[ngram] <= own * times
        ]

    def misplaced_articles(self, words: Sequence[str]) -> list[str]:
        """The plurals and mass nouns that a sentence has "a" or "an" before.

        "a luggage", "a green eyes", "a black and white cows". Which nouns these are is learned from
        the captions: see `LEAST_SHARE`.
        """
        return [
            noun
            for noun, has_article, at_end in _phrases(words)
            if has_article and noun in self._plurals[at_end]
        ]

    def token_ngrams(self, vocabulary: Vocabulary, order: int) -> list[tuple[int, ...]]:
        """The n-grams of `order` tokens that people wrote, each once, in order.

        As many starts, but one, stand before the first word. Left out are n-grams with an unknown
        word, with a triple that only captions with a misplaced article have ("and white cows",
        without its "a"), and with a preposition that people hardly ever use there: see
        `RARE_SHARE`.
        """
        phrases: Counter[Ngram] = Counter()
        for (word, *phrase), count in self.counts[3].items():
            if word in FUNCTION_WORDS:
                phrases[tuple(phrase)] += count

        def is_slip(first: str, second: str, third: str) -> bool:
            if first == "and" and second in MODIFIERS:
                return third.endswith("s") and third in self._plurals[False]
            is_preposition = first in FUNCTION_WORDS and second in _ARTICLES
            count = self.counts[3][first, second, third]
            return is_preposition and count < RARE_SHARE * phrases[second, third]

        slips = {triple for triple in self.counts[3] if is_slip(*triple)}
        index = {word: token for token, word in enumerate(vocabulary.words)}
        found = set()
        for words in self._captions:
            for ngram in ngrams(words, order, starts=order - 1):
                triples = zip(ngram, ngram[1:], ngram[2:], strict=False)
                if index.keys() >= set(ngram) and slips.isdisjoint(triples):
                    found.add(tuple(index[word] for word in ngram))
        return sorted(found)

    def log_probability(self, words: Sequence[str]) -> float:
        """The mean log-probability of a sentence's words and its end, in nats.

        A trigram model with interpolated Kneser-Ney smoothing (Chen and Goodman 1999, *An Empirical
        Study of Smoothing Techniques for Language Modeling*, section 2.7), one discount for all
        orders; below the bigrams all known words and one unknown one are alike.
        """
        total = math.log(self._bigram(START, words[0] if words else END))
        for first, second, word in ngrams(words, 3):
            total += math.log(self._trigram(first, second, word))
        return total / (len(words) + 1)

    def _trigram(self, first: str, second: str, word: str) -> float:
        return self._interpolated((first, second, word), self._bigram(second, word))

    def _bigram(self, first: str, word: str) -> float:
        continuations = self._continuations
        known = len(continuations)
        lower = max(continuations[word] - DISCOUNT, 0) + DISCOUNT * known / (known + 1)
        return self._interpolated((first, word), lower / len(self.counts[2]))

    def _interpolated(self, ngram: Ngram, lower: float) -> float:
        """The probability of the last word. lower: that by the order below."""
        total, kinds = self._histories.get(ngram[:-1], (0, 0))
        if total == 0:
            return lower
        count = self.counts[len(ngram)][ngram]
        return (max(count - DISCOUNT, 0) + DISCOUNT * kinds * lower) / total

    @cached_property
    def _continuations(self) -> Counter[str]:
        """How many different words stand before each word."""
        return Counter(word for _, word in self.counts[2])

    @cached_property
    def _histories(self) -> dict[Ngram, tuple[int, int]]:
        """By history: how often it occurs, and how many different words follow."""
        totals, kinds = Counter[Ngram](), Counter[Ngram]()
        for counts in self.counts.values():
            for ngram, count in counts.items():
                totals[ngram[:-1]] += count
                kinds[ngram[:-1]] += 1
        return {history: (total, kinds[history]) for history, total in totals.items()}


def _phrases(words: Sequence[str]) -> Iterator[tuple[str, bool, bool]]:
    """The nouns that end a phrase: each with whether "a" or "an" begins it, and with whether the
    next word is a function word or the end, not a verb."""
    for place, word in enumerate(words):
        if word in FUNCTION_WORDS or word in MODIFIERS:
            continue
        following = words[place + 1] if place + 1 < len(words) else END
        at_end = following == END or following in FUNCTION_WORDS
        is_verb = following.endswith(("ing", "s")) and not is_noun(following)
        if following == "'s" or not (at_end or is_verb):  # "A men 's room", "a water slide".
            continue
        first = place
        while first and (words[first - 1] in MODIFIERS or words[first - 1] == "and"):
            first -= 1
        between = words[first:place]
        is_counted = bool(between) and (between[0] == "and" or between[0] in _QUANTITIES)
        yield word, first > 0 and words[first - 1] in ("a", "an") and not is_counted, at_end


def _plurals(captions: Iterable[Sequence[str]]) -> dict[bool, set[str]]:
    """The nouns that people do not give "a": where a phrase is at its end, and anywhere."""
    counts = {at_end: Counter[tuple[str, bool]]() for at_end in (True, False)}
    for words in captions:
        for noun, has_article, at_end in _phrases(words):
            for place in {at_end, False}:
                counts[place][noun, has_article] += 1
    return {
        at_end: {
            noun
            for (noun, has_article), bare in found.items()
            if not has_article
            and bare >= LEAST_COUNT
            and found[noun, True] < LEAST_SHARE * bare
            and is_noun(noun)
        }
        for at_end, found in counts.items()
    }
