"""People's n-grams."""

from captioner.text.ngrams import PeoplesNgrams


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
    assert ("a", "luggage", "near") in written.unseen(["a", "luggage", "near", "a", "dog"])
