from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.evaluation.bleu import bleu
from captioner.evaluation.cider import cider_d
from captioner.evaluation.rouge import rouge_l

GOOD = [["a", "dog"]]


@pytest.mark.parametrize("metric", [bleu, cider_d, rouge_l])
@pytest.mark.parametrize(
    ("hypotheses", "references", "sentence"),
    [
        ([], [], "no captions"),
        ([["a"], ["b"]], [GOOD], "2 captions to score but references for 1 images"),
        ([["a"], ["b"]], [GOOD, []], "image number 1 has no list of reference captions"),
        ([["a"], ["b"]], [GOOD, "a dog"], "image number 1 has no list of reference captions"),
        ([["a"], "b c"], [GOOD, GOOD], "image number 1 is a string"),
        ([["a"], ["b"]], [["a dog"], GOOD], "image number 0 is a string"),
    ],
)
def test_what_cannot_be_scored_is_refused(metric, hypotheses, references, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        metric(hypotheses, references)
