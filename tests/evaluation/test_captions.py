from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.evaluation.bleu import bleu
from captioner.evaluation.captions import evaluate_captions
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.rouge import rouge_l

HYPOTHESES = {7: "A dog runs.", "b.jpg": "Two cats sleep on a mat"}
REFERENCES = {
    "b.jpg": ["Two cats on a mat.", "cats sleeping"],
    7: ["A brown dog runs!", "The dog, it runs."],
}
WORDS = [["a", "dog", "runs"], ["two", "cats", "sleep", "on", "a", "mat"]]
REFERENCE_WORDS = [
    [["a", "brown", "dog", "runs"], ["the", "dog", "it", "runs"]],
    [["two", "cats", "on", "a", "mat"], ["cats", "sleeping"]],
]


def test_every_metric_by_name() -> None:
    scores = evaluate_captions(HYPOTHESES, REFERENCES).as_dict()
    expected = bleu(WORDS, REFERENCE_WORDS)
    assert scores == {
        "BLEU-1": expected.scores[0],
        "BLEU-2": expected.scores[1],
        "BLEU-3": expected.scores[2],
        "BLEU-4": expected.scores[3],
        "ROUGE-L": rouge_l(WORDS, REFERENCE_WORDS).score,
        "CIDEr-D": cider_d(WORDS, REFERENCE_WORDS).score,
        "brevity_penalty": expected.brevity_penalty,
        "hypothesis_length": 9,
        "reference_length": 4 + 5,
        "images": 2,
    }
    assert scores["brevity_penalty"] == pytest.approx(1.0)


def test_sequences_score_as_mappings_do() -> None:
    by_image = evaluate_captions(HYPOTHESES, REFERENCES)
    in_order = evaluate_captions(
        list(HYPOTHESES.values()), [REFERENCES[image] for image in HYPOTHESES]
    )
    assert in_order.as_dict() == by_image.as_dict()
    assert in_order.table() == by_image.table()


def test_the_tokenizer_is_the_callers() -> None:
    captions, references = ["a-b", "c-d"], [["a-b"], ["c-x"]]
    scores = evaluate_captions(captions, references, tokenizer=lambda text: text.split("-"))
    assert scores.bleu.precisions[0] == pytest.approx(3 / 4)


def test_one_image_with_a_document_frequency() -> None:
    frequency = DocumentFrequency.from_references(REFERENCE_WORDS)
    alone = evaluate_captions({7: HYPOTHESES[7]}, {7: REFERENCES[7]}, document_frequency=frequency)
    assert alone.as_dict()["CIDEr-D"] == pytest.approx(cider_d(WORDS, REFERENCE_WORDS).per_image[0])
    with pytest.raises(UserError, match="single image"):
        evaluate_captions({7: HYPOTHESES[7]}, {7: REFERENCES[7]})


def test_the_table_reads_well() -> None:
    scores = evaluate_captions(HYPOTHESES, REFERENCES)
    lines = scores.table().splitlines()
    assert lines[0] == f"BLEU-1          {scores.bleu.scores[0]:.4f}"
    assert [line[:16].strip() for line in lines] == [
        *("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D"),
        *("brevity penalty", "words", "images"),
    ]
    assert lines[-2] == "words           9 (closest references: 9)"


@pytest.mark.parametrize(
    ("hypotheses", "references", "sentence"),
    [
        ({1: "a", 2: "b"}, {1: ["a"]}, "image 2 has a caption but no references"),
        ({1: "a"}, {1: ["a"], "x": ["b"]}, "image 'x' has references but no caption"),
        ({1: "a", 2: "b"}, {1: ["a"], 2: []}, "image 2 has no list of reference captions"),
        ({1: "a", 2: "b"}, {1: ["a"], 2: "b"}, "image 2 has no list of reference captions"),
        ({1: "a", 2: None}, {1: ["a"], 2: ["b"]}, "a caption of image 2 is not a string"),
        (["a"], {1: ["a"]}, "not both by image or both in order"),
        (["a", "b"], [["a"]], "2 captions but references for 1 images"),
        ({}, {}, "no captions to score"),
    ],
)
def test_what_does_not_belong_together_is_refused(hypotheses, references, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        evaluate_captions(hypotheses, references)
