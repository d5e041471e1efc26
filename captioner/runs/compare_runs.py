"""Runs side by side: what differs in their configs, their best scores, their time."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from captioner.data.parallel import read_rows
from captioner.errors import UserError, refuse_errors
from captioner.evaluation import Figures, Scores
from captioner.evaluation.corpus import Metric, compare, confidence_intervals, scores_by_name
from captioner.evaluation.score import Scorer, score_results
from captioner.evaluation.translations import bleu_metric
from captioner.files import read_json
from captioner.runs.batches import digest_of
from captioner.runs.caption_scores import REFERENCES, RESULTS
from captioner.runs.run import RECIPE_FILE
from captioner.runs.translation_task import TRANSLATION_REFERENCES, TRANSLATIONS
from captioner.schema import flat
from captioner.tables import latex_table, text_table
from captioner.training.run_log import LOG, best_record, read_log

METRICS = {"BLEU", "BLEU-4", "CIDEr-D"}
INTERVAL = "95 %"  # How the names of intervals end.


@dataclass
class Run:
    """A run as its folder has it; what follows a `problem` is empty."""

    folder: Path
    config: dict[str, str] = field(default_factory=dict)  # As it is written: a table rounds.
    figures: Figures = field(default_factory=dict)  # Of the best epoch, and minutes.
    data: str = ""  # The digest of the validation data; "" of a version that kept none.
    metrics: Sequence[Metric] = ()  # Of the best model on these.
    problem: str = ""  # Why something could not be read.

    def __post_init__(self) -> None:
        try:
            with refuse_errors(f"run log {self.folder / LOG} cannot be used"):
                self._read_log()
            self._score()
        except UserError as error:
            self.problem = f"{error}"

    def _read_log(self) -> None:
        mapping = read_json(self.folder / RECIPE_FILE, "config of the run")
        fields = flat(mapping) if isinstance(mapping, dict) else {}
        self.config = {name: f"{value}" for name, value in fields.items()}
        score = self.config.get("validation.score", "score")
        records = read_log(self.folder)
        best = best_record(records, score)
        if not best:
            raise UserError(f"run log {self.folder / LOG} has no validation by {score} yet")
        self.figures = {name: best.get(name) for name in ("epoch", score, "perplexity")}
        self.figures["minutes"] = sum(record.get("total_seconds", 0) for record in records) / 60

    def _score(self) -> None:
        files = [self.folder / name for name in (TRANSLATION_REFERENCES, TRANSLATIONS)]
        if os.path.exists(files[0]):
            references, translations = zip(*read_rows(files).values(), strict=True)
            self.metrics = [bleu_metric(translations, references)]
            self.data = digest_of(references)
        elif os.path.exists(self.folder / REFERENCES):
            scorer = Scorer(("BLEU", "CIDEr-D"))
            scores = score_results(self.folder / RESULTS, self.folder / REFERENCES, scorer)
            self.metrics = scores.metrics
            self.data = digest_of([scores.image_ids, scores.corpus.references])
        intervals = confidence_intervals(self.metrics)
        for name, score in scores_by_name(self.metrics).items():
            if name in METRICS:
                self.figures |= {name: score, f"{name} {INTERVAL}": intervals[name]}

    def compared(self, other: "Run") -> Figures:
        """The gains over another run of the same validation data, or a note on why not."""
        if other.data != self.data:
            why = "it has other validation data" if self.data else "it kept no references"
            return {"note": f"not compared with {other.folder}: {why}"}
        figures: Figures = {}
        for name, values in compare(self.metrics, other.metrics).items():
            if name in METRICS:
                figures[f"{name} gain"] = values["difference"]
                figures[f"{name} gain {INTERVAL}"] = values["interval"]
                figures[f"{name} p"] = values["p_bootstrap"]
        return figures


@dataclass(frozen=True)
class ComparedRuns(Scores):
    """Runs, a row each.

    problems: sentences on folders without a run, and on runs that could not be read.
    same_data: whether all were validated on the same data, so that scores can be ranked.
    """

    runs: list[Figures]
    problems: list[str]
    same_data: bool

    def table(self) -> str:
        """A header, and a line for each run."""
        return text_table([(*self.runs[0],), *(tuple(run.values()) for run in self.runs)])

    def latex(self) -> str:
        """The table for LaTeX; of `same_data`, the best scores are bold."""
        best: Figures = {}
        if self.same_data:
            for name in METRICS & self.runs[0].keys():
                best[name] = max(run[name] or 0.0 for run in self.runs)
        return latex_table(self.runs, best)

    def rows(self) -> list[Figures]:
        """The runs for CSV: an interval is two columns."""
        rows = []
        for run in self.runs:
            row: Figures = {}
            for name, value in run.items():
                if name.endswith(INTERVAL):
                    row[f"{name} low"], row[f"{name} high"] = value or (None, None)
                else:
                    row[name] = value
            rows.append(row)
        return rows


def compare_runs(folders: Sequence[str], against: str | None = None) -> ComparedRuns:
    """Compare the runs in folders: a row each, with the fields of the configs that differ.

    A field that only one kind of model has is none where its runs agree.

    Scores are those of the best epoch on the validation data, with bootstrap intervals of
    `CONFIDENCE`: BLEU-4 and CIDEr-D of captions, BLEU of translations. Runs of versions that kept
    no references have none. minutes: training and validation, of resumed runs but for the steps
    that were made before in an epoch. note: why a run could not be read or compared.
    against: a run to compare those of the same validation data with by the paired bootstrap, see
        `captioner.evaluation.corpus.compare`.

    Raises `UserError` if no folder has a run, or `against` has no references.
    """
    found = {folder: runs_in(folder) for folder in folders}
    needs = f"no folder of a run here, which has {LOG} and {RECIPE_FILE}"
    problems = [f"{folder}: {needs}" for folder, inside in found.items() if not inside]
    if not any(found.values()):
        raise UserError(f"{', '.join(found)}: {needs}")
    other = None if against is None else Run(Path(against))
    if other and not other.data:
        why = other.problem or "it kept no references"
        raise UserError(f"--against {against} is no run to compare with: {why}")
    runs = [Run(folder) for folder in sorted({*chain.from_iterable(found.values())})]
    pairs = dict.fromkeys(chain.from_iterable(run.config.items() for run in runs))
    counts = Counter(name for name, _ in pairs)
    differing = [name for name, count in counts.items() if count > 1]
    rows = []
    for run in runs:
        fields = {name: run.config.get(name) for name in differing}
        row = {"run": f"{run.folder}", **fields, **run.figures}
        if run.problem:
            problems.append(f"{run.folder}: {run.problem}")
            row["note"] = run.problem
        elif other:
            row |= run.compared(other)
        rows.append(row)
    columns = sorted(dict.fromkeys(chain.from_iterable(rows)), key="note".__eq__)  # The last one.
    rows = [{name: row.get(name) for name in columns} for row in rows]
    return ComparedRuns(rows, problems, same_data=len({run.data for run in runs}) == 1)


def runs_in(folder: str) -> set[Path]:
    """The folders of runs in a folder, itself included; none of a file or of what is not there."""
    logs = Path(folder).rglob(LOG)
    return {log.parent for log in logs if log.with_name(RECIPE_FILE).exists()}
