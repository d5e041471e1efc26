from __future__ import annotations

import sys

import pytest

from captioner.errors import UserError
from captioner.evaluation.translations import evaluate_translations

sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")

REFERENCES = ["Ein Mann geht mit seinem Hund.", "Zwei Frauen sitzen auf einer Bank."]
FOUND = ["Ein Mann geht mit dem Hund.", "Zwei Frauen sitzen auf einer Bank."]


def test_they_are_sacrebleus_with_its_signatures() -> None:
    scores = evaluate_translations(FOUND, REFERENCES)
    assert scores.bleu == pytest.approx(sacrebleu.corpus_bleu(FOUND, [REFERENCES]).score)
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(FOUND, [REFERENCES]).score)
    assert scores.exact == 0.5
    assert scores.brevity_penalty == 1.0
    assert "case:mixed" in scores.bleu_signature
    assert f"version:{sacrebleu.__version__}" in scores.bleu_signature
    assert scores.as_dict().keys() == {"BLEU", "brevity_penalty", "chrF", "exact match"}
    assert scores.bleu_signature in scores.table()
    assert f"{scores.bleu:.2f}" in scores.table()


def test_short_translations_are_penalised() -> None:
    assert evaluate_translations(["Ein Mann geht mit"], REFERENCES[:1]).brevity_penalty < 1


def test_small_letters_are_in_the_signature() -> None:
    upper = [text.upper() for text in REFERENCES]
    assert evaluate_translations(upper, REFERENCES).bleu < 50
    scores = evaluate_translations(upper, REFERENCES, lower_case=True)
    assert scores.bleu == pytest.approx(100)
    assert "case:lc" in scores.bleu_signature


def test_what_cannot_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no translation to score"):
        evaluate_translations([], [])
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r'sacrebleu: pip install "captioner\[translate\]"'):
        evaluate_translations(FOUND, REFERENCES)
