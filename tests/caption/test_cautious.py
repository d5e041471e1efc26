"""The cautious caption: shorter forms and the choice, worked out by hand, and of a model."""

import pytest
import torch
from samples import confidence_weights, make_captioner, photo

from captioner.caption.caption import Caption
from captioner.caption.cautious import cautious_caption, shorter_forms
from captioner.caption.confidence import Caution, Confidence, WordWeights
from captioner.text.languages import FUNCTION_WORDS

WEIGHTS = confidence_weights(1.0, 0.5, 0.75, 0.25, -0.125)
WORDS = WordWeights(intercept=-1, probability=3, caption=0.5, both=0.1, offsets={"dog": 0.4})
PHOTOS = [photo(seed, (90, 80)) for seed in range(3)]


def caption(text: str, *confidence: float) -> Caption:
    """A caption whose content words have these confidences."""
    words, scores = tuple(text.split()), iter(confidence)
    each = tuple(None if word in FUNCTION_WORDS else next(scores) for word in words)
    terms, maps = (-0.5,) * len(words), torch.arange(float(len(words))).reshape(-1, 1, 1)
    return Caption(text, words, -9.0, terms, maps, score=-1.0, word_confidence=each)


DOG = caption("a black dog runs on the beach with a hat", 0.8, 0.9, 0.7, 0.8, 0.2)


def test_a_shorter_form_lacks_last_phrases() -> None:
    forms = list(shorter_forms(DOG))
    expected = ["a black dog runs on the beach", "a black dog runs", "a black dog"]
    assert [form.text for form in forms] == expected
    runs = forms[1]
    assert runs.words == ("a", "black", "dog", "runs")
    assert runs.word_confidence == (None, 0.8, 0.9, 0.7)
    assert runs.attention.flatten().tolist() == [0, 1, 2, 3]
    assert (runs.log_probability, runs.word_log_probabilities) == (-6, (-0.5,) * 4)
    assert runs.score == -1.0
    assert [form.text for form in shorter_forms(DOG, given=4)] == expected[:2]


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("a red and white bus parked in front of a house", ["a red and white bus parked", "bus"]),
        ("a group of people is trying to eat", ["a group of people"]),
        ("a man 's hat and his two dogs", ["a man 's hat", "a man"]),
        ("a dog", []),
    ],
)
def test_a_shorter_form_ends_in_a_noun_or_a_verb(text: str, forms: list[str]) -> None:
    given = caption(text, *[0.5] * 9)
    found = [" ".join(form.words) for form in shorter_forms(given)]
    assert len(found) == len(forms)
    assert all(map(str.endswith, found, forms))


@pytest.mark.parametrize(
    ("captions", "expected"),
    [
        # Phrases whose words are likelier than .65 stay; "hat" is not.
        ([DOG], "a black dog runs on the beach"),
        # Nothing of "a cat" is true with .5, which costs more than to say "wet".
        ([caption("a cat in a wet", 0.5, 0.4)], "a cat in a wet"),
        ([caption("a dog", 0.7), caption("a cat runs", 0.7, 0.7)], "a cat runs"),
        ([caption("a man with a boy", 0.8, 0.4)], "a man"),
    ],
)
def test_most_that_is_likely_and_little_that_is_not(captions: list[Caption], expected: str) -> None:
    assert cautious_caption(captions, Caution()).text == expected


def test_likely_words_raise_the_rank_of_a_caption() -> None:
    model = make_captioner()
    likely_two = WORDS.replace(offsets={"two": 6.0})
    model.confidence = Confidence(weights=WEIGHTS, words=likely_two)
    plain = model.caption(PHOTOS[0], n_best=5)
    weighed = model.caption(PHOTOS[0], n_best=5, truth_weight=9.0)
    expected = {
        one.text: one.score + 9 * sum(p - 0.4 for p in one.word_confidence if p is not None)
        for one in (plain, *plain.alternatives)
    }
    scores = {one.text: one.score for one in (weighed, *weighed.alternatives)}
    assert scores == pytest.approx(expected)
    assert [*scores] == sorted(expected, key=expected.__getitem__, reverse=True)
    assert weighed.text != plain.text
    assert model.caption(PHOTOS[0], beam=5, truth_weight=9.0).text == weighed.text
    model.confidence = None
    assert model.caption(PHOTOS[0], beam=5, truth_weight=9.0).text == plain.text
