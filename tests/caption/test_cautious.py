"""The cautious caption: shorter forms and the choice, worked out by hand, and of a model."""

from pathlib import Path

import pytest
import torch
from samples import assert_same_captions, confidence_weights, make_captioner, photo, table_of

import captioner
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.cautious import cautious_caption, shorter_forms
from captioner.caption.confidence import Caution, Confidence, WordWeights
from captioner.caption.folder import save_model
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


def test_shorter_forms_leave_phrases_out() -> None:
    forms = list(shorter_forms(DOG, lambda words: True))
    rests = [" on the beach with a hat", " on the beach", " with a hat", ""]
    expected = [f"a black dog{verb}{rest}" for verb in (" runs", "") for rest in rests]
    assert [form.text for form in forms] == expected
    with_hat = forms[6]
    assert with_hat.words == ("a", "black", "dog", "with", "a", "hat")
    assert with_hat.word_confidence == (None, 0.8, 0.9, None, None, 0.2)
    assert with_hat.attention.flatten().tolist() == [0, 1, 2, 7, 8, 9]
    assert (with_hat.log_probability, with_hat.word_log_probabilities) == (-7, (-0.5,) * 6)
    assert with_hat.score == -1.0
    known = list(shorter_forms(DOG, lambda words: words[-1] == "runs"))
    assert [form.text for form in known] == ["a black dog runs"]
    assert cautious_caption([DOG], lambda words: False, Caution()) is DOG


@pytest.mark.parametrize(
    ("captions", "expected"),
    [
        # Phrases whose words are likelier than .65 stay; "hat" is not.
        ([DOG], "a black dog runs on the beach"),
        # Nothing of "a cat" is true with .5, which costs more than to say "wet".
        ([caption("a cat in a wet", 0.5, 0.4)], "a cat in a wet"),
        ([caption("a dog", 0.7), caption("a cat runs", 0.7, 0.7)], "a cat runs"),
        ([caption("two men in a car", 0.9, 0.7, 0.9)], "two people in a car"),
        ([caption("a man in a car", 0.85, 0.9)], "a man in a car"),  # Sure of the man.
        ([caption("a man with a boy", 0.4, 0.4)], "a person"),  # "a person with a person" is not.
        # The best caption has no person, so that the other one's man is doubted.
        ([caption("a red car", 0.5, 0.5), caption("a man", 0.3)], "a red car"),
    ],
)
def test_most_that_is_likely_and_little_that_is_not(captions: list[Caption], expected: str) -> None:
    assert cautious_caption(captions, lambda words: True, Caution()).text == expected


def cautious_model() -> Captioner:
    model = make_captioner()
    model.confidence = Confidence(weights=WEIGHTS, words=WORDS)
    return model


def test_a_model_is_cautious_alike_in_batches_and_saved(tmp_path: Path) -> None:
    model = cautious_model()
    together = model.caption(PHOTOS, cautious=True)
    assert_same_captions([model.caption(each, cautious=True) for each in PHOTOS], together)
    save_model(model, tmp_path / "model")
    loaded = captioner.load(tmp_path / "model")
    assert loaded.confidence == model.confidence
    both = model.caption(PHOTOS[0], cautious=True, n_best=2)
    assert both.alternatives[0].text != both.text


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


def test_sentences_are_of_known_ngrams() -> None:
    model = cautious_model()
    assert not model.backend.is_sentence(("a", "dog"))  # It has no n-grams.
    vocabulary = model.backend.vocabulary
    start, end = vocabulary.start, vocabulary.end
    a, dog, runs = vocabulary.encode(["a", "dog", "runs"])
    tokens = [start, start, start, a, dog, runs, end]
    known = torch.tensor([tokens[first : first + 4] for first in range(4)])
    model.backend.ngrams = table_of(known, len(vocabulary))
    assert model.backend.is_sentence(("a", "dog", "runs"))
    for words in (("a", "dog"), ("dog", "runs"), ("a", "dog", "dog"), ()):
        assert not model.backend.is_sentence(words)
