"""Runs side by side: what differs in their configs, their best scores, their time."""

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from captioner.data.parallel import read_rows
from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, Figures
from captioner.evaluation.corpus import compare, confidence_intervals
from captioner.evaluation.score import Scorer, score_results
from captioner.evaluation.translations import bleu_metric
from captioner.files import read_json, read_text
from captioner.runs.caption_scores import REFERENCES, RESULTS
from captioner.runs.run import RECIPE_FILE
from captioner.runs.translation_task import TRANSLATION_REFERENCES, TRANSLATIONS
from captioner.schema import flat
from captioner.training.run_log import LOG, read_log


def compare_runs(folders: Sequence[str], against: str | None = None) -> list[Figures]:
    """Compare the runs in folders: a row each, with the fields of the configs that differ.

    Scores are those of the best epoch on the validation data, with bootstrap intervals of
    `CONFIDENCE`: BLEU-4 and CIDEr-D of captions, BLEU of translations. Runs of versions that kept
    no references have none. minutes: training and validation, of resumed runs but for the steps
    that were made before in an epoch.
    against: a run to compare with by the paired bootstrap, see
        `captioner.evaluation.corpus.compare`.
    """
    runs = sorted({path.parent for folder in folders for path in Path(folder).rglob(LOG)})
    if not runs:
        raise UserError(f"{' '.join(folders)}: no folder of a run here, which has {LOG}")
    mappings = [read_json(run / RECIPE_FILE, "config of the run") for run in runs]
    configs = [flat(each) if isinstance(each, dict) else {} for each in mappings]
    names = dict.fromkeys(chain.from_iterable(configs))
    differing = [name for name in names if len({repr(each.get(name)) for each in configs}) > 1]
    rows = []
    for run, config in zip(runs, configs, strict=True):
        score = config.get("validation.score", "score")
        records = read_log(run)
        scored = (record for record in records if score in record)
        best = max(scored, key=lambda record: record[score], default={})
        figures = {name: best.get(name) for name in ("epoch", score, "perplexity")}
        figures["minutes"] = sum(record.get("total_seconds", 0) for record in records) / 60
        fields = {name: f"{config.get(name)}" for name in differing}
        rows.append({"run": f"{run}", **fields, **figures, **_intervals(run, against)})
    columns = dict.fromkeys(chain.from_iterable(rows))
    return [{name: row.get(name) for name in columns} for row in rows]


def _intervals(run: Path, against: str | None) -> Figures:
    """The metrics of a run with intervals, and its differences from another run."""
    if os.path.exists(run / TRANSLATION_REFERENCES):
        return _of_translations(run, against)
    if not os.path.exists(run / REFERENCES):
        return {}
    scorer = Scorer(confidence=CONFIDENCE, against=against and Path(against, RESULTS))
    scores = score_results(run / RESULTS, run / REFERENCES, scorer).to_dict()
    compared = scores["comparison"]["scores"] if against else {}
    figures: Figures = {}
    for name in ("BLEU-4", "CIDEr-D"):
        figures |= {name: scores[name], f"{name} 95 %": scores["intervals"][name]}
        figures |= _gains(name, compared)
    return figures


def _of_translations(run: Path, against: str | None) -> Figures:
    files = [run / TRANSLATION_REFERENCES, run / TRANSLATIONS]
    if against:
        theirs = Path(against, TRANSLATION_REFERENCES)
        if read_text(theirs, "references of the run") != read_text(files[0]):
            differ = "differ in their validation sentences, and cannot be compared"
            raise UserError(f"{run} and {against} {differ}")
        files.append(Path(against, TRANSLATIONS))
    references, *systems = zip(*read_rows(files).values(), strict=True)
    ours, *others = [[bleu_metric(texts, references)] for texts in systems]
    figures: Figures = {"BLEU": float(ours[0].scores[0])}
    figures |= {"BLEU 95 %": confidence_intervals(ours)["BLEU"]}
    for other in others:
        figures |= _gains("BLEU", compare(ours, other))
    return figures


def _gains(name: str, compared: Figures) -> Figures:
    """The gain of a score over another run with its interval and p; empty if none is compared."""
    if not compared:
        return {}
    *_, difference, interval, p = compared[name].values()
    return {f"{name} gain": difference, f"{name} gain 95 %": interval, f"{name} p": p}
