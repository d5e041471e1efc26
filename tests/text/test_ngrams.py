"""People's n-grams."""

from captioner.text.ngrams import PeoplesNgrams
from captioner.text.vocabulary import Vocabulary


def people(*captions: str) -> PeoplesNgrams:
    return PeoplesNgrams(caption.split() for caption in captions)


def test_unseen_ngrams() -> None:
    written = people("a dog runs", "a cat sits")
    assert written.unseen(["a", "dog", "runs"]) == []
    ends = [("dog", "sits"), ("a", "dog", "sits"), ("dog", "sits", "<end>")]
    assert written.unseen(["a", "dog", "sits"]) == ends


def test_plurals_and_mass_nouns_take_no_article() -> None:
    captions = [
        f"{('two', 'three', 'some')[place % 3]} {('black', 'white')[place % 2]} {noun} "
        f"{('on', 'near', 'by')[place % 3]} the place{place}"
        for noun in ("cows", "luggage", "eyes", "men", "water")
        for place in range(50)
    ]
    captions += [f"a dog near the place{number}" for number in range(50)]
    more = "a luggage near a dog", "two black and white cows", "a black and white cow"
    written = people(*captions, *more)
    for sentence in ("a luggage", "a cat with a green eyes", "a black and white cows standing"):
        (noun,) = written.misplaced_articles(sentence.split())
        assert noun in ("luggage", "eyes", "cows")
    right = ["a dog", "a luggage cart", "a pair of eyes", "a few cows", "the cows by a dog"]
    for sentence in (*right, "a men 's room", "a water slide"):
        assert written.misplaced_articles(sentence.split()) == []
    assert ("and", "white", "cows") in written.counts[3]
    words = Vocabulary(["and", "black", "cow", "cows", "white"])  # 4 to 8
    triples = {ngram[1:] for ngram in written.token_ngrams(words, 4)}
    assert (4, 8, 7) not in triples
    assert (4, 8, 6) in triples
    assert ("a", "luggage", "near") in written.unseen(["a", "luggage", "near", "a", "dog"])


def test_ngrams_of_tokens_by_hand() -> None:
    vocabulary = Vocabulary(["a", "dog", "runs"])  # 4, 5, 6; 1 is the start and 2 the end
    written = people("a dog", "a cat runs", "dog runs")
    ngrams = [(1, 1, 1, 4), (1, 1, 1, 5), (1, 1, 4, 5), (1, 1, 5, 6), (1, 4, 5, 2), (1, 5, 6, 2)]
    assert written.token_ngrams(vocabulary, 4) == ngrams


def test_prepositions_that_people_hardly_use_are_slips() -> None:
    captions = [f"dog{number} on the beach".split() for number in range(60)]
    written = PeoplesNgrams([*captions, ["cat", "in", "the", "beach"], ["cat", "in", "the", "sea"]])
    vocabulary = Vocabulary(["beach", "in", "on", "sea", "the"])  # 4 to 8
    ngrams = written.token_ngrams(vocabulary, 4)  # 2 is the end
    assert (6, 8, 4, 2) in ngrams
    assert (5, 8, 4, 2) not in ngrams
    assert (5, 8, 7, 2) in ngrams
