"""Scores translations with sacrebleu: lists of them, a file, or those that a model writes."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from captioner.csv_tables import Row, text_table
from captioner.data.example import Problems
from captioner.data.parallel import check_line_by_line, read_lines
from captioner.decoding.options import TranslationSearch
from captioner.errors import UserError
from captioner.translate.translator import Translator

WIDTH = 5
"""Lengths in a bucket; the first one holds 0 too."""


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a corpus.

    bleu, chrf: sacrebleu's, 0 to 100. brevity_penalty: 0 to 1, part of BLEU.
    exact: share of translations that equal their reference, 0 to 1.
    bleu_signature, chrf_signature: sacrebleu's record of how they were computed.
    lengths: as from `bleu_by_length`; empty without sources.
    truncated: by line, from 1, the tokens of a too long source that the model did not read.
    cut: the lines whose translation ended at the maximum length.
    """

    sentences: int
    bleu: float
    brevity_penalty: float
    chrf: float
    exact: float
    bleu_signature: str
    chrf_signature: str
    lengths: list[dict[str, Any]] = field(default_factory=list)
    truncated: dict[int, int] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)

    def by_name(self) -> dict[str, float]:
        """The scores by their names in configs and logs."""
        return {
            "BLEU": self.bleu,
            "brevity_penalty": self.brevity_penalty,
            "chrF": self.chrf,
            "exact match": self.exact,
        }

    def to_dict(self) -> dict[str, Any]:
        """The scores of `by_name` with their circumstances, for JSON."""
        plain: dict[str, Any] = {
            "sentences": self.sentences,
            **self.by_name(),
            "signatures": {"BLEU": self.bleu_signature, "chrF": self.chrf_signature},
        }
        if self.lengths:
            plain["lengths"] = self.lengths
        counts = {"truncated": len(self.truncated), "cut": len(self.cut)}
        return plain | {name: count for name, count in counts.items() if count}

    def table(self) -> str:
        """The scores as lines of text, each with its signature."""
        rows: list[Row] = [
            ("BLEU", f"{self.bleu:.2f}", f"brevity penalty {self.brevity_penalty:.3f}"),
            ("", self.bleu_signature),
            ("chrF", f"{self.chrf:.2f}"),
            ("", self.chrf_signature),
            ("exact match", f"{self.exact:.2%}"),
        ]
        text = f"sentences: {self.sentences:,}\n{text_table(rows)}"
        if not self.lengths:
            return text
        rows = [("words of the source", "sentences", "BLEU", "brevity penalty")]
        for each in self.lengths:
            (first, last), sentences, bleu, penalty = each.values()
            rows.append((f"{first} to {last}", sentences, f"{bleu:.2f}", f"{penalty:.3f}"))
        return f"{text}\n\n{text_table(rows)}"


def evaluate_translations(
    translations: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str] | None = None,
    lower_case: bool = False,
) -> TranslationScores:
    """Score translations, as untokenised text, against one reference each.

    BLEU: Papineni et al. 2002, in the form of Post 2018 (*A Call for Clarity in Reporting BLEU
    Scores*). chrF: Popovic 2015.

    sources: what was translated, for BLEU by its length.
    lower_case: score without case, which the signature records.
    """
    if not references:
        raise UserError("there is no translation to score")
    metrics = sacrebleu_metrics()
    bleu, chrf = metrics.BLEU(lowercase=lower_case), metrics.CHRF(lowercase=lower_case)
    found = bleu.corpus_score(list(translations), [list(references)])
    characters = chrf.corpus_score(list(translations), [list(references)])
    same = sum(one == other for one, other in zip(translations, references, strict=True))
    return TranslationScores(
        sentences=len(references),
        bleu=float(found.score),
        brevity_penalty=float(found.bp),
        chrf=float(characters.score),
        exact=same / len(references),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        lengths=[] if sources is None else bleu_by_length(translations, references, sources, bleu),
    )


def bleu_by_length(
    translations: Sequence[str], references: Sequence[str], sources: Sequence[str], bleu: Any
) -> list[dict[str, Any]]:
    """BLEU by length of the source, by name, for each bucket that has sentences.

    As in Bahdanau et al. 2014, figure 2, and Luong et al. 2015, figure 6. bleu: of sacrebleu.

    words: the first and the last length, between white space, whatever the model's tokens.
    sentences: their number. BLEU: of them as a corpus, 0 to 100; noisy for few sentences.
    brevity_penalty: 0 to 1, part of BLEU.
    """
    pairs: defaultdict[int, list[list[str]]] = defaultdict(list)
    for source, *pair in zip(sources, translations, references, strict=True):
        pairs[max(0, len(source.split()) - 1) // WIDTH].append(pair)
    buckets = []
    for number, own in sorted(pairs.items()):
        score = bleu.corpus_score([one for one, _ in own], [[other for _, other in own]])
        bucket = {"words": [number * WIDTH + 1, (number + 1) * WIDTH], "sentences": len(own)}
        buckets.append({**bucket, "BLEU": float(score.score), "brevity_penalty": float(score.bp)})
    return buckets


def sacrebleu_metrics() -> Any:
    """sacrebleu's metrics; the package is an extra."""
    try:
        from sacrebleu import metrics
    except ImportError:
        raise UserError(
            'scoring translations needs the package sacrebleu: pip install "captioner[translate]"'
        ) from None
    return metrics


def score_hypotheses(
    hypotheses: str | Path,
    references: str | Path,
    source: str | Path | None = None,
    lower_case: bool = False,
    problems: Problems | None = None,
) -> TranslationScores:
    """Score the lines of a file against those of another.

    source: the text that was translated, for BLEU by its length. Files that end in .gz are
        unpacked. A translation or a source may be empty; a reference may not.
    problems: counts the empty references, and says whether they are refused (default) or skipped.
    """
    files = [hypotheses] if source is None else [hypotheses, source]
    wanted, *columns = zip(*_read_rows(references, files, problems).values(), strict=True)
    sources = None if source is None else columns[1]
    return evaluate_translations(columns[0], wanted, sources, lower_case)


def _read_rows(
    references: str | Path, others: Sequence[str | Path], problems: Problems | None
) -> dict[int, list[str]]:
    """The line of each file, stripped, by its number from 1, where the reference is not empty."""
    problems = Problems() if problems is None else problems
    problems.source, problems.skipping = f"text file {references}", "--on-problem skip"
    columns = [read_lines(references)]
    for other in others:
        columns.append(read_lines(other))
        check_line_by_line(other, columns[-1], references, columns[0])
    rows = {}
    for number, row in enumerate(zip(*columns, strict=True), start=1):
        if row[0].strip():
            rows[number] = list(map(str.strip, row))
        else:
            problems.add("empty sentence", f"line {number} is empty")
    problems.settle()
    if not rows:
        raise UserError(f"there is no sentence in {references}")
    return rows


def score_translator(
    translator: Translator,
    source: str | Path,
    references: str | Path,
    search: TranslationSearch | None = None,
    batch_size: int = 32,
    lower_case: bool = False,
    problems: Problems | None = None,
) -> TranslationScores:
    """Translate the lines of a file and score them against those of another.

    search: by default the model's own options. problems: as for `score_hypotheses`.
    """
    sacrebleu_metrics()  # Fails before the long translation if sacrebleu is missing.
    rows = _read_rows(references, [source], problems)
    wanted, sources = zip(*rows.values(), strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The scores have the long sources.
        found = translator.translate(sources, search, batch_size=batch_size)
    texts = [translation.text.strip() for translation in found]
    return replace(
        evaluate_translations(texts, wanted, sources, lower_case),
        truncated={
            n: each.truncated for n, each in zip(rows, found, strict=True) if each.truncated
        },
        cut=[n for n, each in zip(rows, found, strict=True) if each.cut],
    )
