"""From text to scores, against the COCO evaluation with its Java tokeniser, to 1e-9."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioner.evaluation.captions import evaluate_captions

COCO = (
    Path(__file__).resolve().parents[2].parent
    / "shared"
    / "data"
    / "coco"
    / "captions_val2017_subset.json"
)

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("java") is None, reason="needs Java"),
]

NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D")


def assert_equal_to_coco(captions: list[str], references: list[list[str]]) -> None:
    tokenizer = PTBTokenizer()
    truth = tokenizer.tokenize(
        {n: [{"caption": text} for text in of_image] for n, of_image in enumerate(references)}
    )
    results = tokenizer.tokenize({n: [{"caption": text}] for n, text in enumerate(captions)})
    expected, per_image = Bleu(4).compute_score(truth, results, verbose=0)
    columns = [np.array(column) for column in per_image]
    for scorer in (Rouge(), Cider()):
        score, per_image = scorer.compute_score(truth, results)
        expected.append(score)
        columns.append(np.asarray(per_image))
    found = evaluate_captions(captions, references)
    by_image = found.per_image_by_name()
    for name, score, column in zip(NAMES, expected, columns, strict=True):
        assert found.by_name()[name] == pytest.approx(score, abs=1e-9), name
        np.testing.assert_allclose(by_image[name], column, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not COCO.exists(), reason="needs the real captions in ../shared/data/coco")
def test_all_real_captions_scored_against_each_other() -> None:
    by_image: dict[int, list[str]] = defaultdict(list)
    for record in json.loads(COCO.read_text(encoding="utf-8"))["annotations"]:
        by_image[record["image_id"]].append(record["caption"])
    texts = [captions for captions in by_image.values() if len(captions) > 1]
    assert len(texts) > 4800
    assert_equal_to_coco([own for own, *_ in texts], [others for _, *others in texts])


def test_hostile_captions() -> None:
    captions = [
        "A man's dog doesn't run.",
        "",
        "dog",
        "A \N{DOG FACE} and a \N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET} 50% off!",
        "a dog runs far " * 2500,
        # What follows a last letter with a period decides, in the suite, whether it keeps it: "A".
        "The corner of 22 3/4 St. and 8th Ave/CTH D.",
        "A room with a flat screen T.V. ",
        '"Quoted" (in brackets) -- and... so on; e.g., cannot, gonna & AT&T',
        "Une façade brûlée, déjà vu; 1,000 x 3.5 at 10:30pm on the 3rd",
        ". ! ? , ; : - --",
    ]
    # Every caption is followed by the same one as above, for the same reason.
    references = [
        [captions[index - 1], caption, "A dog runs."] for index, caption in enumerate(captions)
    ]
    references[4] = ["A dog runs far.", "a dog " * 30]
    references[5] = ["The corner of 22 3/4 St.", "A dog runs."]
    references[1] = ["A dog runs.", "A cat."]
    references[9] = ["A dog runs.", "..."]
    assert len(captions[4].split()) == 10_000
    assert_equal_to_coco(captions, references)
    assert_equal_to_coco(captions, references[1:] + references[:1])
