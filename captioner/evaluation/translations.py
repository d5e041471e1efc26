"""Scores translations with sacrebleu, and keeps the scores' signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from captioner.errors import UserError
from captioner.evaluation.text_table import text_table


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a corpus.

    bleu, chrf: sacrebleu's, 0 to 100. brevity_penalty: 0 to 1, part of BLEU.
    exact: share of translations that equal their reference, 0 to 1.
    bleu_signature, chrf_signature: sacrebleu's record of how they were computed.
    """

    bleu: float
    brevity_penalty: float
    chrf: float
    exact: float
    bleu_signature: str
    chrf_signature: str

    def as_dict(self) -> dict[str, float]:
        """The scores by their names in configs and logs."""
        return {
            "BLEU": self.bleu,
            "brevity_penalty": self.brevity_penalty,
            "chrF": self.chrf,
            "exact match": self.exact,
        }

    def table(self) -> str:
        """The scores as lines of text, each with its signature."""
        rows = [
            ("BLEU", f"{self.bleu:.2f}", f"brevity penalty {self.brevity_penalty:.3f}"),
            ("", self.bleu_signature),
            ("chrF", f"{self.chrf:.2f}"),
            ("", self.chrf_signature),
            ("exact match", f"{self.exact:.2%}"),
        ]
        return text_table(rows)


def evaluate_translations(
    translations: Sequence[str], references: Sequence[str], lower_case: bool = False
) -> TranslationScores:
    """Score translations, as untokenised text, against one reference each.

    BLEU: Papineni et al. 2002, in the form of Post 2018 (*A Call for Clarity in Reporting BLEU
    Scores*). chrF: Popovic 2015. lower_case: score without case, which the signature records.
    Raises `UserError` if there are none, and without sacrebleu.
    """
    if not references:
        raise UserError("there is no translation to score")
    metrics = sacrebleu_metrics()
    bleu, chrf = metrics.BLEU(lowercase=lower_case), metrics.CHRF(lowercase=lower_case)
    found = bleu.corpus_score(list(translations), [list(references)])
    characters = chrf.corpus_score(list(translations), [list(references)])
    same = sum(one == other for one, other in zip(translations, references, strict=True))
    return TranslationScores(
        bleu=float(found.score),
        brevity_penalty=float(found.bp),
        chrf=float(characters.score),
        exact=same / len(references),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def sacrebleu_metrics() -> Any:
    """sacrebleu's metrics. Raises `UserError` if the package is missing."""
    try:
        from sacrebleu import metrics  # Imported here: an extra.
    except ImportError:
        raise UserError(
            'scoring translations needs the package sacrebleu: pip install "captioner[translate]"'
        ) from None
    return metrics
