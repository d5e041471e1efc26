from __future__ import annotations

import json

import pytest

from captioner.errors import UserError
from captioner.evaluation.cider import DocumentFrequency

HYPOTHESES = [["a", "red", "dog"], ["a", "cat"]]
REFERENCES = [[["a", "red", "dog"], ["red"]], [["a", "cat"]]]


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
        ({"images": 3, "counts": {"a": 0}}, "counts.a 0 is not at least 1"),
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
