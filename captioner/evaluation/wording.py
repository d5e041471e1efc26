"""What captions say and how: true words, things that are not there, variety.

Content words are compared by stem, so that "dogs" matches "dog": Porter's English stemmer in
Snowball (https://snowballstem.org), through snowballstemmer.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise

import numpy as np
import snowballstemmer

from captioner.data.instances import Synonyms, read_synonyms
from captioner.evaluation import Figures
from captioner.evaluation.corpus import Corpus, FloatArray, Metric, Tokens
from captioner.text.languages import FUNCTION_WORDS, WORD_KINDS, word_kinds, word_paragraphs

NO_WORD_TRUE = "captions with none"
"""The name of a score: the share of captions without a content word that a reference has."""


def word_precision(corpus: Corpus) -> Metric:
    """The share of each caption's content words that a reference of its image has.

    The mean over captions that have content words, 0 where none has, in which a word that occurs
    twice counts twice; and the share of all captions without a content word that a reference has.
    """
    stems = ["" if word in FUNCTION_WORDS else _stem(word) for word in corpus.vocabulary]
    distinct, stem_of = np.unique(stems or [""], return_inverse=True)  # (V,)
    stem = stem_of[corpus.words]  # (W,)
    image = np.repeat(corpus.image_of, corpus.lengths)  # (W,)
    is_reference = np.repeat(corpus.is_reference, corpus.lengths)  # (W,)
    is_content = distinct[stem] != ""  # (W,)
    code = image.astype(np.int64) * len(distinct) + stem  # (W,)
    is_named = is_content & ~is_reference  # (W,)
    said = np.append(np.sort(code[is_content & is_reference]), -1)
    is_true = said[np.searchsorted(said[:-1], code[is_named])] == code[is_named]
    words = np.bincount(image[is_named], minlength=corpus.images)  # (I,)
    true_words = np.bincount(image[is_named], is_true, corpus.images)  # (I,)
    shares = np.where(words > 0, true_words / np.maximum(1, words), np.nan)  # (I,)
    terms = np.stack((np.nan_to_num(shares), words > 0, true_words == 0), axis=1)  # (I, 3)

    def of_totals(totals: FloatArray) -> FloatArray:
        precise, with_content, none_true = np.moveaxis(totals, -1, 0)
        precision = precise / np.maximum(1, with_content)
        return np.stack((precision, none_true / corpus.images), axis=-1)

    return Metric(("word-precision", NO_WORD_TRUE), shares, terms, of_totals)


def content_stems(words: Iterable[str]) -> list[str]:
    """The stems of the content words among tokenised words, in their order."""
    return [_stem(word) for word in words if word not in FUNCTION_WORDS]


@cache
def _stem(word: str) -> str:
    return str(snowballstemmer.stemmer("english").stemWord(word))


def true_words(words: Tokens, references: Iterable[Tokens]) -> list[bool | None]:
    """Whether each word of a tokenised caption is true; None for a function word.

    True is a word that a reference says, by stem; or one that says the same: another name of one of
    COCO's things, a word of `alike.txt`, or "person" where there is anybody.
    """
    said = set(chain.from_iterable(chain.from_iterable(map(_meanings, references))))
    if "somebody" in said:
        said.add("anybody")
    return [bool(said & word - {"somebody"}) if word else None for word in _meanings(words)]


def words_by_kind(
    captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
) -> dict[str, dict[str, float | None]]:
    """The content words of captions by kind, and of `all`: their number and shares.

    said: the share that a reference says, by stem. true: with its synonyms. None without words.
    """
    counts = Counter[tuple[str, str]]()
    for words, of_image in zip(captions, references, strict=True):
        stems = set(content_stems(chain.from_iterable(of_image)))
        truth, kinds = true_words(words, of_image), word_kinds(words)
        for word, is_true, kind in zip(words, truth, kinds, strict=True):
            for name in (kind, "all") if kind else ():
                counts[name, "words"] += 1
                counts[name, "said"] += not stems.isdisjoint(content_stems([word]))
                counts[name, "true"] += bool(is_true)
    shares: dict[str, dict[str, float | None]] = {}
    for name in (*WORD_KINDS, "all"):
        number = counts[name, "words"]
        shares[name] = {"words": number}
        for share in ("said", "true"):
            shares[name][share] = counts[name, share] / number if number else None
    return shares


def _meanings(words: Tokens) -> Iterator[set[str]]:
    """The meanings by which each word is compared; a function word has none."""
    things = [""] * len(words)
    for first, last, category in _synonyms().mentions(words):
        things[first:last] = [category] * (last - first)
    for word, kind, thing in zip(words, word_kinds(words), things, strict=True):
        meanings = set(content_stems([word]))
        if word in _ALIKE:
            meanings.add(f"as {_ALIKE[word]}")
        if kind == "person":  # A man is no woman, but both are persons.
            meanings |= {"somebody", "anybody"} if word in _ANYBODY else {"somebody"}
        elif thing and meanings:
            meanings.add(f"a {thing}")
        yield meanings


_synonyms = cache(read_synonyms)
_GROUPS = word_paragraphs("alike")
_ALIKE = {word: number for number, group in enumerate(_GROUPS) for word in group}
_ANYBODY = next(group for group in _GROUPS if "person" in group)


def chair(
    captions: Sequence[Tokens],
    references: Sequence[Sequence[Tokens]],
    categories: Sequence[Collection[str]],
    synonyms: Synonyms,
    known: frozenset[str],
) -> Figures:
    """CHAIR (Rohrbach et al. 2018, section 2.1): how often captions name what is not there.

    categories: of each image, the annotated ones. In it are these and those that its references
        name.
    known: the categories that count, as `CocoInstances.known_categories`.

    By name, fractions of one with their counts; a thing counts once a caption:
    CHAIR-i: equation 1, the share of named things that are not there. CHAIR-s: equation 2, the
    share of captions that name such a thing. recall: the share of the things in the photos that
    captions name. None if there are no things. most_hallucinated: captions that hallucinate each
    category. dropped_categories: those of the word list that the annotations lack.
    """

    def named(words: Tokens) -> frozenset[str]:
        return known & {category for _, _, category in synonyms.mentions(words)}

    present = []
    for annotated, of_image in zip(categories, references, strict=True):
        present.append((known & frozenset(annotated)).union(*map(named, of_image)))
    mentioned = list(map(named, captions))
    absent = [things - there for things, there in zip(mentioned, present, strict=True)]
    mentions = sum(map(len, mentioned))
    wrong = sum(map(len, absent))
    things = sum(map(len, present))
    wrong_captions = sum(map(bool, absent))
    by_category = Counter(sorted(chain.from_iterable(absent)))
    return {
        "CHAIR-i": wrong / mentions if mentions else None,
        "CHAIR-s": wrong_captions / len(captions),
        "recall": (mentions - wrong) / things if things else None,
        "mentions": mentions,
        "hallucinated_mentions": wrong,
        "present": things,
        "hallucinating_captions": wrong_captions,
        "captions": len(captions),
        "most_hallucinated": dict(by_category.most_common()),
        "categories": len(known),
        "dropped_categories": [name for name in synonyms.categories if name not in known],
    }


def _repeats_phrase(words: tuple[str, ...], length: int) -> bool:
    phrases = [words[first : first + length] for first in range(len(words) - length + 1)]
    return len(set(phrases)) < len(phrases)


def text_diversity(
    captions: Sequence[Tokens], training: Iterable[Tokens] | None = None
) -> dict[str, float]:
    """How varied C tokenised captions are, by name; shares are fractions of one.

    Devlin et al. 2015, *Language Models for Image Captioning*, section 4; Shetty et al. 2017,
    *Speaking the Same Language*, section 5.

    distinct_captions: different captions, word for word. seen_in_training: the share of captions
    that equal one of `training`, if given. vocabulary: different words. mean_length: in words.
    doubled_word: the share of captions with a word directly after itself ("a a"). repeated_2_words
    to repeated_4_words: with an n-gram that occurs twice in the caption.
    """
    sentences = [tuple(tokens) for tokens in captions]
    count = len(sentences)
    distinct = set(sentences)
    shares = {"distinct_captions": len(distinct), "distinct_share": len(distinct) / count}
    if training is not None:
        known = set(map(tuple, training))
        shares["seen_in_training"] = sum(words in known for words in sentences) / count
    shares["vocabulary"] = len(set(chain.from_iterable(distinct)))
    shares["mean_length"] = sum(map(len, sentences)) / count
    doubled = sum(any(one == other for one, other in pairwise(words)) for words in sentences)
    shares["doubled_word"] = doubled / count
    for n in (2, 3, 4):
        repeating = sum(_repeats_phrase(words, n) for words in sentences)
        shares[f"repeated_{n}_words"] = repeating / count
    return shares
