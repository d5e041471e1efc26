"""N-grams that people wrote, and misplaced articles: what a fluency reward counts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from captioner.text.languages import FUNCTION_WORDS, MODIFIERS, is_noun
from captioner.text.vocabulary import SPECIAL_WORDS

_, START, END, _ = SPECIAL_WORDS  # Before the first word, and after the last.
# A noun that ends so many phrases, less than this share with "a", is a plural or a mass noun.
LEAST_COUNT, LEAST_SHARE = 20, 0.03
_QUANTITIES = {"few", "lot", "bunch", "variety", "pair", "couple", "half", "dozen"}
Ngram = tuple[str, ...]


def _bigrams_and_trigrams(words: Sequence[str]) -> list[Ngram]:
    """Those of a tokenised sentence with `START` before it and `END` after it."""
    padded = (START, *words, END)
    return [*pairwise(padded), *zip(padded, padded[1:], padded[2:], strict=False)]


class PeoplesNgrams:
    """The bigrams and trigrams of people's captions.

    captions: from `tokenize`. Those with `misplaced_articles` do not count.
    """

    def __init__(self, captions: Iterable[Sequence[str]]) -> None:
        distinct = set(map(tuple, captions))
        self._plurals = _plurals(distinct)
        written = {words for words in distinct if not self.misplaced_articles(words)}
        self._known = {ngram for words in written for ngram in _bigrams_and_trigrams(words)}

    def unseen(self, words: Sequence[str]) -> list[Ngram]:
        """The bigrams and trigrams of a sentence that nobody wrote."""
        found = dict.fromkeys(_bigrams_and_trigrams(words))
        return [ngram for ngram in found if ngram not in self._known]

    def misplaced_articles(self, words: Sequence[str]) -> list[str]:
        """The plurals and mass nouns with "a" or "an" before: "a luggage", "a green eyes"."""
        with_article = (phrase[:2] for phrase in _phrases(words) if phrase[2])
        return [noun for noun, at_end in with_article if (noun, at_end) in self._plurals]


def _phrases(words: Sequence[str]) -> Iterator[tuple[str, bool, bool]]:
    """Find the nouns that end a phrase, each with `at_end` and `has_article`.

    at_end: whether a function word or the end follows, not a verb. has_article: "a" or "an" begins.
    """
    for position, (word, following) in enumerate(pairwise((*words, END))):
        if word in FUNCTION_WORDS or word in MODIFIERS:
            continue
        at_end = following == END or following in FUNCTION_WORDS
        is_verb = following.endswith(("ing", "s")) and not is_noun(following)
        if following == "'s" or not (at_end or is_verb):  # "A men 's room", "a water slide".
            continue
        first = position
        while first and (words[first - 1] in MODIFIERS or words[first - 1] == "and"):
            first -= 1
        is_counted = first < position and words[first] in ("and", *_QUANTITIES)
        has_article = first > 0 and words[first - 1] in ("a", "an")
        yield word, at_end, has_article and not is_counted


def _plurals(captions: Iterable[Sequence[str]]) -> set[tuple[str, bool]]:
    """The nouns that people use without "a": at an end, with True, or anywhere, with False."""
    uses = Counter[tuple[str, bool, bool]]()
    for words in captions:
        for noun, at_end, has_article in _phrases(words):
            uses.update({(noun, at_end, has_article), (noun, False, has_article)})
    return {
        (noun, at_end)
        for (noun, at_end, has_article), bare in uses.items()
        if not has_article and bare >= LEAST_COUNT and is_noun(noun)
        if uses[noun, at_end, True] < LEAST_SHARE * bare
    }
