from __future__ import annotations

import json
import math

import pytest

from captioner.errors import UserError
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus

HYPOTHESES = [["a", "red", "dog"], ["a", "cat"]]
REFERENCES = [[["a", "red", "dog"], ["red"]], [["a", "cat"]]]


def test_worked_by_hand() -> None:
    scores = cider_d(Corpus.of(HYPOTHESES, REFERENCES))
    # "a" is in both images and weighs nothing; every other n-gram weighs log 2.
    # Image 0, first reference: equal in one, two and three words (no four): 3 of 4.
    # Second reference: one word of two that weigh; cosine 1 / sqrt 2; lengths 2 and 0 pairs.
    second = 1 / math.sqrt(2) * math.exp(-(2**2) / (2 * 36)) / 4
    assert scores.per_image[0] == pytest.approx(10 * (3 / 4 + second) / 2)
    assert scores.per_image[1] == pytest.approx(10 * 2 / 4)
    assert scores.score == pytest.approx(scores.per_image.mean())


def test_a_single_image_needs_a_document_frequency() -> None:
    alone = Corpus.of(HYPOTHESES[:1], REFERENCES[:1])
    with pytest.raises(UserError, match="single image needs a stored document frequency"):
        cider_d(alone)
    scores = cider_d(alone, DocumentFrequency.from_references(REFERENCES))
    assert scores.score == pytest.approx(cider_d(Corpus.of(HYPOTHESES, REFERENCES)).per_image[0])


def test_counting_document_frequency() -> None:
    frequency = DocumentFrequency.from_references([*REFERENCES, [["a", "red", "cat"], ["red"]]])
    assert frequency.images == 3
    with pytest.raises(UserError, match="needs at least 2 images, not 1"):
        DocumentFrequency.from_references(REFERENCES[:1])
    # Those of one image alone are left out, also where it has them twice.
    assert frequency.counts == {"a": 3, "red": 2, "cat": 2, "a red": 2}


def test_document_frequency_is_written_and_read(tmp_path) -> None:
    frequency = DocumentFrequency.from_references([*REFERENCES, *[[["é", "\N{DOG FACE}"]]] * 2])
    frequency.write(tmp_path / "frequency.json")
    assert DocumentFrequency.read(tmp_path / "frequency.json") == frequency


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "expected fields with values"),
        ({"counts": {}}, "field 'images' is missing"),
        ({"images": 3}, "field 'counts' is missing"),
        ({"images": 3, "counts": {"a": 1.5}}, "counts.a should be a whole number"),
        ({"images": 3, "counts": {"a dog": 4}}, "counts of 'a dog' is 4, more than 3 images"),
        ({"images": 1, "counts": {}}, "images 1 is not at least 2"),
    ],
)
def test_ill_formed_document_frequency_is_refused(tmp_path, content, sentence) -> None:
    path = tmp_path / "frequency.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=sentence) as refusal:
        DocumentFrequency.read(path)
    assert str(path) in str(refusal.value)
