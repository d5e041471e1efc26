"""Scores translations with sacrebleu: lists of them, a file, or those that a model writes."""

import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np

from captioner.data.example import Problems
from captioner.data.parallel import read_rows
from captioner.decoding.options import TranslationSearch
from captioner.errors import UserError, refuse_missing
from captioner.evaluation import Figures, Scores
from captioner.evaluation.corpus import FloatArray, Metric
from captioner.tables import Row, figures_table, text_table
from captioner.translate.translation import Translation
from captioner.translate.translator import Translator

File = str | Path
WIDTH = 5  # Lengths in a bucket; the first one holds 0 too.


@dataclass(frozen=True)
class TranslationScores(Scores):
    """Scores of a corpus.

    scores: by name, `BLEU` and `chrF` of sacrebleu, 0 to 100; `brevity_penalty`, 0 to 1, part of
        BLEU; `exact match`, the share of translations that equal their reference.
    lengths: for each bucket of lengths of sources with sentences, its first and last length in
        words and the BLEU of its sentences as a corpus, as in Bahdanau et al. 2014, figure 2.
    """

    sentences: int
    scores: dict[str, float]
    signatures: dict[str, str]  # sacrebleu's, of how `BLEU` and `chrF` were computed.
    lengths: list[Figures]
    shortened: dict[int, Translation] = field(default_factory=dict)  # By line: source or end cut.

    def to_dict(self) -> Figures:
        """The scores with their signatures, lengths and counts, for JSON."""
        plain = {"sentences": self.sentences, **self.scores, "signatures": self.signatures}
        more = {
            "lengths": self.lengths,
            "truncated": sum(one.truncated > 0 for one in self.shortened.values()),
            "cut": sum(one.cut for one in self.shortened.values()),
        }
        return plain | {name: value for name, value in more.items() if value}

    def table(self) -> str:
        """The scores as lines of text, each with its signature."""
        text = figures_table({"sentences": self.sentences, **self.scores}, self.signatures)
        rows: list[Row] = [("words of the source", "sentences", "BLEU", "brevity penalty")]
        for bucket in self.lengths:
            first, last = bucket["words"]
            figures = bucket["sentences"], bucket["BLEU"], bucket["brevity_penalty"]
            rows.append((f"{first} to {last}", *figures))
        return f"{text}\n\n{text_table(rows)}" if self.lengths else text


def evaluate_translations(
    translations: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str] = (),
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
    corpus_bleu = bleu.corpus_score(translations, [references])
    same = sum(one == other for one, other in zip(translations, references, strict=True))
    scores = {
        "BLEU": float(corpus_bleu.score),
        "brevity_penalty": float(corpus_bleu.bp),
        "chrF": float(chrf.corpus_score(translations, [references]).score),
        "exact match": same / len(references),
    }
    signatures = {"BLEU": str(bleu.get_signature()), "chrF": str(chrf.get_signature())}
    buckets: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for source, one, other in zip(sources, translations, references, strict=bool(sources)):
        buckets[max(0, len(source.split()) - 1) // WIDTH].append((one, other))
    lengths = []
    for number, pairs in sorted(buckets.items()):
        score = bleu.corpus_score([one for one, _ in pairs], [[other for _, other in pairs]])
        bucket = {"words": [number * WIDTH + 1, (number + 1) * WIDTH], "sentences": len(pairs)}
        lengths.append({**bucket, "BLEU": float(score.score), "brevity_penalty": float(score.bp)})
    return TranslationScores(len(references), scores, signatures, lengths)


def bleu_metric(translations: Sequence[str], references: Sequence[str]) -> Metric:
    """sacrebleu's BLEU of all sentences together, for its bootstrap interval."""
    bleu = sacrebleu_metrics().BLEU()
    pairs = zip(translations, references, strict=True)
    scores = [bleu.corpus_score([one], [[other]]) for one, other in pairs]
    terms = [[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scores]

    def of_sums(sums: FloatArray) -> FloatArray:
        counts, totals, lengths = np.split(sums.astype(int), [4, 8])
        found = bleu.compute_bleu(counts.tolist(), totals.tolist(), *lengths.tolist())
        return np.array([found.score])

    of_totals = partial(np.apply_along_axis, of_sums, -1)  # (..., 10) -> (..., 1)
    return Metric(("BLEU",), np.empty(0), np.array(terms, np.float64), of_totals)


def sacrebleu_metrics() -> ModuleType:
    """sacrebleu's metrics; the package is an extra."""
    with refuse_missing("scoring translations needs the package sacrebleu", "translate"):
        from sacrebleu import metrics
    return metrics


def score_hypotheses(
    hypotheses: File,
    references: File,
    source: File | None = None,
    lower_case: bool = False,
    problems: Problems | None = None,
) -> TranslationScores:
    """Score the lines of a file against those of another; .gz is unpacked.

    source: the text that was translated, for BLEU by its length.
    problems: counts the empty references, and says whether they are refused (default) or skipped.
    """
    files = [references, hypotheses]
    if source is not None:
        files.append(source)
    columns = [*zip(*read_rows(files, problems).values(), strict=True)]
    sources = () if source is None else columns[2]
    return evaluate_translations(columns[1], columns[0], sources, lower_case)


def score_translator(
    translator: Translator,
    source: File,
    references: File,
    search: TranslationSearch | None = None,
    batch_size: int = 32,
    lower_case: bool = False,
    problems: Problems | None = None,
) -> TranslationScores:
    """Translate the lines of a file and score them; see `score_hypotheses`."""
    sacrebleu_metrics()  # Fails before the long translation if sacrebleu is missing.
    rows = read_rows([references, source], problems)
    wanted, sources = zip(*rows.values(), strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The scores have the long sources.
        translations = translator.translate(sources, search, batch_size=batch_size)
    texts = [t.text.strip() for t in translations]
    scores = evaluate_translations(texts, wanted, sources, lower_case)
    by_line = zip(rows, translations, strict=True)
    return replace(scores, shortened={n: t for n, t in by_line if t.truncated or t.cut})
