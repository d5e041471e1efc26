"""N-grams that people wrote, in any language; misplaced articles and English slips."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product

from captioner.text.languages import ARTICLES, FUNCTION_WORDS, MODIFIERS, is_noun
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

_, START, END, _ = SPECIAL_WORDS  # Before the first word, and after the last.
# A noun that ends so many phrases, less than this share with "a", is a plural or a mass noun.
LEAST_COUNT, LEAST_SHARE = 20, 0.03
# A preposition is a slip in less than this share of an article and noun's: "in the beach".
RARE_SHARE = 0.02
_QUANTITIES = {"few", "lot", "bunch", "variety", "pair", "couple", "half", "dozen"}
Ngram = tuple[str, ...]


def ngrams(words: Sequence[str], order: int, starts: int = 1) -> Iterator[Ngram]:
    """The n-grams of a tokenised sentence with `START` before it and `END` after it."""
    padded = (*(START,) * starts, *words, END)
    return zip(*(padded[first:] for first in range(order)), strict=False)


class PeoplesNgrams:
    """The words, bigrams and trigrams of people's captions, counted.

    captions: from `tokenize`. Equal ones count once, those with `misplaced_articles` never.
    """

    def __init__(self, captions: Iterable[Sequence[str]]) -> None:
        distinct = set(map(tuple, captions))
        self._plurals = _plurals(distinct)
        self._captions = {words for words in distinct if not self.misplaced_articles(words)}
        self.counts: dict[int, Counter[Ngram]] = {2: Counter(), 3: Counter()}
        for words, order in product(self._captions, self.counts):
            self.counts[order].update(ngrams(words, order))

    def unseen(self, words: Sequence[str]) -> list[Ngram]:
        """The bigrams and trigrams of a sentence that nobody wrote."""
        found = dict.fromkeys(ngram for order in self.counts for ngram in ngrams(words, order))
        return [ngram for ngram in found if not self.counts[len(ngram)][ngram]]

    def misplaced_articles(self, words: Sequence[str]) -> list[str]:
        """The plurals and mass nouns with "a" or "an" before: "a luggage", "a green eyes"."""
        with_article = (phrase[:2] for phrase in _phrases(words) if phrase[2])
        return [noun for noun, at_end in with_article if (noun, at_end) in self._plurals]

    def token_ngrams(self, vocabulary: Vocabulary, order: int) -> list[tuple[int, ...]]:
        """The n-grams of `order` tokens that people wrote, after `order` - 1 starts, each once.

        Left out are n-grams with an unknown word, with "and", a modifier and a plural ("and white
        cows", left by "a black and white cows"), and with a preposition that is rare before its
        article and noun: see `RARE_SHARE`.
        """
        after_prepositions = Counter[Ngram]()  # How often each pair follows any function word.
        for (word, *pair), count in self.counts[3].items():
            if word in FUNCTION_WORDS:
                after_prepositions[tuple(pair)] += count

        def is_slip(triple: Ngram) -> bool:
            first, second, third = triple
            if first == "and" and second in MODIFIERS:
                return third.endswith("s") and (third, False) in self._plurals
            is_preposition = first in FUNCTION_WORDS and second in ARTICLES
            least = RARE_SHARE * after_prepositions[second, third]
            return is_preposition and self.counts[3][triple] < least

        slips = set(filter(is_slip, self.counts[3]))
        index = {word: token for token, word in enumerate(vocabulary.words)}
        token_ngrams = set()
        for words in self._captions:
            for ngram in ngrams(words, order, starts=order - 1):
                triples = zip(ngram, ngram[1:], ngram[2:], strict=False)
                if index.keys() >= set(ngram) and slips.isdisjoint(triples):
                    token_ngrams.add(tuple(index[word] for word in ngram))
        return sorted(token_ngrams)


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
