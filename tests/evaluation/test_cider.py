from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.evaluation.cider import DocumentFrequency

REFERENCES = [[["a", "red", "dog"], ["red"]], [["a", "cat"]], [["a", "red", "cat"], ["red"]]]


def test_counting_document_frequency() -> None:
    frequency = DocumentFrequency.from_references(REFERENCES)
    assert frequency.images == 3
    with pytest.raises(UserError, match="needs at least 2 images, not 1"):
        DocumentFrequency.from_references(REFERENCES[:1])
    # Those of one image alone are left out, also where it has them twice.
    assert frequency.counts == {"a": 3, "red": 2, "cat": 2, "a red": 2}
