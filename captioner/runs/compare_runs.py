"""Runs side by side: what differs in their configs, their best scores, their time."""

import os
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from captioner.data.parallel import read_rows
from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, Figures
from captioner.evaluation.corpus import compare, confidence_intervals
from captioner.evaluation.score import Scorer, score_results
from captioner.evaluation.translations import bleu_metric
from captioner.files import read_json
from captioner.runs.caption_scores import REFERENCES, RESULTS
from captioner.runs.run import RECIPE_FILE
from captioner.runs.translation_task import TRANSLATION_REFERENCES, TRANSLATIONS
from captioner.schema import flat
from captioner.training.run_log import LOG, read_log


def compare_runs(folders: Sequence[str], against: str | None = None) -> list[Figures]:
    """Compare the runs in folders: a row each, with the fields of the configs that differ.

    A field that only one kind of model has is none where its runs agree.

    Scores are those of the best epoch on the validation data, with bootstrap intervals of
    `CONFIDENCE`: BLEU-4 and CIDEr-D of captions, BLEU of translations. Runs of versions that kept
    no references have none. minutes: training and validation, of resumed runs but for the steps
    that were made before in an epoch.
    against: a run to compare those of its task with by the paired bootstrap, see
        `captioner.evaluation.corpus.compare`.
    """
    logs = chain.from_iterable(Path(folder).rglob(LOG) for folder in folders)
    runs = sorted({log.parent for log in logs if log.with_name(RECIPE_FILE).exists()})
    if not runs:
        needs = f"no folder of a run here, which has {LOG} and {RECIPE_FILE}"
        raise UserError(f"{' '.join(folders)}: {needs}")
    mappings = [read_json(run / RECIPE_FILE, "config of the run") for run in runs]
    flattened = [flat(each) if isinstance(each, dict) else {} for each in mappings]
    # As they are written: a table rounds numbers.
    configs = [{name: f"{value}" for name, value in each.items()} for each in flattened]
    pairs = dict.fromkeys(chain.from_iterable(config.items() for config in configs))
    counts = Counter(name for name, _ in pairs)
    differing = [name for name, count in counts.items() if count > 1]
    other = None if against is None else Path(against)
    rows = []
    for run, config in zip(runs, configs, strict=True):
        score = config.get("validation.score", "score")
        records = read_log(run)
        scored = (record for record in records if score in record)
        best = max(scored, key=lambda record: record[score], default={})
        figures = {name: best.get(name) for name in ("epoch", score, "perplexity")}
        figures["minutes"] = sum(record.get("total_seconds", 0) for record in records) / 60
        fields = {name: config.get(name) for name in differing}
        rows.append({"run": f"{run}", **fields, **figures, **_intervals(run, other)})
    columns = dict.fromkeys(chain.from_iterable(rows))
    if other and not any(name.endswith(" gain") for name in columns):
        raise UserError(f"{other}: no run to compare with it has scores of the same task")
    return [{name: row.get(name) for name in columns} for row in rows]


def _intervals(run: Path, against: Path | None) -> Figures:
    """The metrics of a run with intervals, and its differences from another run."""
    is_translator = os.path.exists(run / TRANSLATION_REFERENCES)
    other_task = RESULTS if is_translator else TRANSLATIONS
    if against is not None and os.path.exists(against / other_task):
        against = None
    if is_translator:
        scores = _of_translations(run, against)
    elif os.path.exists(run / REFERENCES):
        scorer = Scorer(confidence=CONFIDENCE, against=against and against / RESULTS)
        scores = score_results(run / RESULTS, run / REFERENCES, scorer).to_dict()
    else:
        return {}
    figures: Figures = {}
    for name in sorted({"BLEU", "BLEU-4", "CIDEr-D"} & scores["intervals"].keys()):
        figures |= {name: scores[name], f"{name} 95 %": scores["intervals"][name]}
        if "comparison" in scores:
            *_, difference, interval, p = scores["comparison"]["scores"][name].values()
            figures |= {f"{name} gain": difference, f"{name} gain 95 %": interval, f"{name} p": p}
    return figures


def _of_translations(run: Path, against: Path | None) -> Figures:
    """The BLEU of a translator's run, as in `CaptionScores.to_dict`, and its comparison."""
    files = [(each / TRANSLATION_REFERENCES, each / TRANSLATIONS) for each in (run, against or run)]
    rows, other_rows = map(read_rows, files)
    references, translations = zip(*rows.values(), strict=True)
    bleu = bleu_metric(translations, references)
    scores = {"BLEU": float(bleu.scores[0]), "intervals": confidence_intervals([bleu])}
    if against is None:
        return scores
    other_references, others = zip(*other_rows.values(), strict=True)
    if other_references != references:
        raise UserError(f"{run} and {against} differ in their validation sentences")
    compared = compare([bleu], [bleu_metric(others, references)])
    return {**scores, "comparison": {"scores": compared}}
