"""The cautious caption: shorter forms and the choice, worked out by hand, and of a model."""

from pathlib import Path

import pytest
import torch
from samples import assert_same_captions, confidence_weights, make_captioner, photo

import captioner
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.cautious import cautious_caption, shorter_forms
from captioner.caption.confidence import Confidence, WordWeights
from captioner.caption.folder import save_model
from captioner.decoding.constraints import ngram_keys
from captioner.errors import UserError

WEIGHTS = confidence_weights(1.0, 0.5, 0.75, 0.25, -0.125)
WORDS = WordWeights(intercept=-1, probability=3, caption=0.5, both=0.1, offsets={"dog": 0.4})
PHOTOS = [photo(seed, (90, 80)) for seed in range(3)]


def caption(text: str, *confidence: float) -> Caption:
    """A caption whose content words have these confidences."""
    words, scores = tuple(text.split()), iter(confidence)
    each = tuple(None if word in ("a", "on", "in", "the", "is") else next(scores) for word in words)
    terms, maps = (-0.5,) * len(words), torch.ones(len(words), 1, 1)
    return Caption(text, words, -9.0, terms, maps, score=-1.0, word_confidence=each)


DOG = caption("a black dog is running on the beach in a hat", 0.8, 0.9, 0.7, 0.6, 0.2)


def test_shorter_forms_end_as_people_end_theirs() -> None:
    forms = list(shorter_forms(DOG, lambda words: True))
    assert [form.text for form in forms] == [
        "a black dog",
        "a black dog is running",
        "a black dog is running on the beach",
    ]
    parked = caption("a red car parked in the snow", 0.5, 0.5, 0.5, 0.5)
    ends = [form.text for form in shorter_forms(parked, lambda words: True)]
    assert ends == ["a red car", "a red car parked"]
    first = forms[0]
    assert (first.words, first.word_confidence) == (("a", "black", "dog"), (None, 0.8, 0.9))
    assert (first.log_probability, first.word_log_probabilities) == (-1.5, (-0.5,) * 3)
    assert (len(first.attention), first.score) == (3, -1.0)
    ends = list(shorter_forms(DOG, lambda words: words[-1] == "running"))
    assert [form.text for form in ends] == ["a black dog is running"]


@pytest.mark.parametrize(
    ("doubtful_below", "expected"),
    [
        (0.1, "a black dog is running on the beach in a hat"),
        (0.5, "a black dog is running on the beach"),
        (0.65, "a black dog is running"),
        (0.75, "a black dog"),
        (
            0.95,
            "a brown dog",
        ),  # All have a doubtful word: .855 of its words are true, .85 of "a black dog".
    ],
)
def test_most_that_is_likely_and_nothing_doubtful(doubtful_below: float, expected: str) -> None:
    other = caption("a brown dog", 0.72, 0.99)
    assert cautious_caption([DOG, other], doubtful_below, lambda words: True).text == expected


def cautious_model() -> Captioner:
    model = make_captioner()
    model.confidence = Confidence(weights=WEIGHTS, words=WORDS, doubtful_below=0.6)
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


def test_a_model_ends_as_people_do() -> None:
    model = cautious_model()
    assert model.can_end(["a", "dog"])  # It has no n-grams.
    vocabulary = model.vocabulary
    a, dog = vocabulary.encode(["a", "dog"])
    known = [vocabulary.start, a, dog, vocabulary.end]
    model.ngrams = ngram_keys([torch.tensor([token]) for token in known], len(vocabulary))
    assert model.can_end(["a", "dog"])
    assert not model.can_end(["a"])
    assert not model.can_end(["dog", "a", "dog"])


def test_a_model_without_word_confidences_cannot_be() -> None:
    with pytest.raises(UserError, match="captioner calibrate"):
        make_captioner().caption(PHOTOS[0], cautious=True)
