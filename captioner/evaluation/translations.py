"""Scores of translations, by sacrebleu, with the signature that says which scores they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from captioner.errors import UserError


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a corpus.

    bleu, chrf: 0 to 100, as sacrebleu gives them. brevity_penalty: 0 to 1, part of BLEU.
    exact: share of translations that equal their reference, 0 to 1.
    bleu_signature, chrf_signature: what sacrebleu says they were computed with.
    """

    bleu: float
    brevity_penalty: float
    chrf: float
    exact: float
    bleu_signature: str
    chrf_signature: str

    def as_dict(self) -> dict[str, float]:
        """The scores by the names that configs and logs give them."""
        return {
            "BLEU": self.bleu,
            "brevity_penalty": self.brevity_penalty,
            "chrF": self.chrf,
            "exact match": self.exact,
        }

    def table(self) -> str:
        """The scores in lines a person reads, each with its signature."""
        return (
            f"BLEU         {self.bleu:6.2f}  (brevity penalty {self.brevity_penalty:.3f})\n"
            f"             {self.bleu_signature}\n"
            f"chrF         {self.chrf:6.2f}\n"
            f"             {self.chrf_signature}\n"
            f"exact match  {100 * self.exact:6.2f} %"
        )


def evaluate_translations(
    translations: Sequence[str], references: Sequence[str], lower_case: bool = False
) -> TranslationScores:
    """Score translations, normal text and not cut into words, against one reference each.

    BLEU: Papineni et al. 2002, as Post 2018 (*A Call for Clarity in Reporting BLEU Scores*) has it.
    chrF: Popovic 2015. lower_case: score both in small letters; the signature says so.
    Raises `UserError` for different numbers of them, for none, and without sacrebleu.
    """
    if len(translations) != len(references):
        raise UserError(
            f"there are {len(translations)} translations but {len(references)} references"
        )
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
    """Sacrebleu's metrics. Raises `UserError` when the package is missing."""
    try:
        from sacrebleu import metrics  # Imported here: few have it.
    except ImportError:
        raise UserError(
            'scoring translations needs the package sacrebleu: pip install "captioner[translate]"'
        ) from None
    return metrics
