"""Scores translations with sacrebleu, of a file or of a model, line by line."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from captioner.csv_tables import Row, text_table
from captioner.data.parallel import check_line_by_line, read_lines, read_parallel
from captioner.errors import UserError
from captioner.translate import TranslationSearch, Translator


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


WIDTH = 5
"""Lengths in a bucket; the first one holds 0 too."""


@dataclass(frozen=True)
class LengthBucket:
    """The sentences whose sources have `first` to `last` words.

    sentences: their number. bleu: of them as a corpus, 0 to 100; noisy for few sentences.
    brevity_penalty: 0 to 1, part of BLEU.
    """

    first: int
    last: int
    sentences: int
    bleu: float
    brevity_penalty: float


@dataclass(frozen=True)
class TranslationReport:
    """Scores of translations.

    scores: of all. sentences: their number.
    lengths: BLEU by length of the source; empty without sources.
    truncated: by line, from 1, the tokens of a too long source that the model did not read.
    cut: the lines whose translation ended at the maximum length.
    """

    scores: TranslationScores
    sentences: int
    lengths: list[LengthBucket] = field(default_factory=list)
    truncated: dict[int, int] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)

    def table(self) -> str:
        """The scores as lines of text."""
        parts = [f"sentences: {self.sentences:,}\n{self.scores.table()}"]
        if self.lengths:
            rows: list[Row] = [("words of the source", "sentences", "BLEU", "brevity penalty")]
            for each in self.lengths:
                bleu, penalty = f"{each.bleu:.2f}", f"{each.brevity_penalty:.3f}"
                rows.append((f"{each.first} to {each.last}", each.sentences, bleu, penalty))
            parts.append(text_table(rows))
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """The scores by name, for JSON."""
        plain: dict[str, Any] = {
            "sentences": self.sentences,
            **self.scores.as_dict(),
            "signatures": {
                "BLEU": self.scores.bleu_signature,
                "chrF": self.scores.chrf_signature,
            },
        }
        if self.lengths:
            plain["lengths"] = [
                {
                    "words": [bucket.first, bucket.last],
                    "sentences": bucket.sentences,
                    "BLEU": bucket.bleu,
                    "brevity_penalty": bucket.brevity_penalty,
                }
                for bucket in self.lengths
            ]
        if self.truncated:
            plain["truncated"] = len(self.truncated)
        if self.cut:
            plain["cut"] = len(self.cut)
        return plain


def score_hypotheses(
    hypotheses: str | Path,
    references: str | Path,
    source: str | Path | None = None,
    lower_case: bool = False,
) -> TranslationReport:
    """Score the lines of a file against those of another.

    source: the text that was translated, for BLEU by its length. Files that end in .gz are
        unpacked. A translation may be empty; a reference or a source may not.
    Raises `UserError` for a file that cannot be read or has another number of lines, and as
    `evaluate_translations` and `bleu_by_length` do.
    """
    pairs = read_parallel(source or references, references).pairs
    sources = [pair.source for pair in pairs] if source else None
    wanted = [pair.target for pair in pairs]
    found = read_lines(hypotheses)
    check_line_by_line(hypotheses, found, references, wanted)
    return _report(found, wanted, sources, lower_case)


def score_translator(
    translator: Translator,
    source: str | Path,
    references: str | Path,
    search: TranslationSearch | None = None,
    batch_size: int = 32,
    lower_case: bool = False,
) -> TranslationReport:
    """Translate the lines of a file and score them against those of another.

    search: by default the model's own options. Raises `UserError` as `score_hypotheses` and
    `Translator.translate` do.
    """
    sacrebleu_metrics()  # Fails before the long translation if sacrebleu is missing.
    pairs = read_parallel(source, references).pairs
    sources, wanted = [pair.source for pair in pairs], [pair.target for pair in pairs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The report has the long sources.
        found = translator.translate(sources, search, batch_size=batch_size)
    texts = [translation.text for translation in found]
    lost = {n: each.truncated for n, each in enumerate(found, start=1) if each.truncated}
    report = _report(texts, wanted, sources, lower_case)
    cut = [number for number, each in enumerate(found, start=1) if each.cut]
    return replace(report, truncated=lost, cut=cut)


def bleu_by_length(
    translations: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    lower_case: bool = False,
) -> list[LengthBucket]:
    """BLEU by length of the source, for each bucket that has sentences.

    As in Bahdanau et al. 2014, figure 2, and Luong et al. 2015, figure 6. A source's length counts
    words between white space, whatever the model's tokens. Raises `UserError` without sacrebleu.
    """
    places: dict[int, list[int]] = defaultdict(list)
    for place, source in enumerate(sources):
        places[max(0, len(source.split()) - 1) // WIDTH].append(place)
    bleu = sacrebleu_metrics().BLEU(lowercase=lower_case)
    found = []
    for number, own in sorted(places.items()):
        score = bleu.corpus_score(
            [translations[place] for place in own], [[references[place] for place in own]]
        )
        first, last = number * WIDTH + 1, (number + 1) * WIDTH
        found.append(LengthBucket(first, last, len(own), float(score.score), float(score.bp)))
    return found


def _report(
    found: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str] | None,
    lower_case: bool,
) -> TranslationReport:
    found = [text.strip() for text in found]
    lengths = []
    if sources is not None:
        lengths = bleu_by_length(found, references, sources, lower_case=lower_case)
    scores = evaluate_translations(found, references, lower_case)
    return TranslationReport(scores, len(references), lengths)
