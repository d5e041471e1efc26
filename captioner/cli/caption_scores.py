"""The score options that `captioner evaluate` and `captioner score` share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from captioner.evaluation.metric_names import DEFAULT_METRICS, METRICS

if TYPE_CHECKING:
    from captioner.evaluation.caption_report import ScoreReport
    from captioner.evaluation.significance import Resampling


def add_scores(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the choice of scores and the files they are written to."""
    group = parser.add_argument_group("scores")
    group.add_argument(
        "--metrics",
        nargs="+",
        choices=METRICS,
        default=DEFAULT_METRICS,
        metavar="METRIC",
        help=f"{', '.join(DEFAULT_METRICS)} (default: these), METEOR, SPICE (need captioner[java])",
    )
    group.add_argument(
        "--confidence",
        nargs="?",
        type=float,
        const=0.95,
        metavar="SHARE",
        help="bootstrap confidence intervals (default: 0.95)",
    )
    group.add_argument("--json", metavar="FILE", help="write the scores")
    group.add_argument("--csv", metavar="FILE", help="write the scores of every image")
    return group


def check_confidence(
    arguments: argparse.Namespace, resamples: int | None = None, seed: int | None = None
) -> Resampling:
    """The options of resampling. Raises `UserError` for values out of range."""
    from captioner.evaluation.significance import Resampling

    given = {"resamples": resamples, "confidence": arguments.confidence, "seed": seed}
    return Resampling(**{name: each for name, each in given.items() if each is not None})


def write_report(
    scores: ScoreReport,
    arguments: argparse.Namespace,
    more: Sequence[Callable[[], None]] = (),
) -> None:
    """Print the tables, write the files and run `more`; a failure does not stop the rest."""
    from captioner.files import try_all, write_json

    print(scores.table(), flush=True)
    writers: list[Callable[[], None]] = []
    if arguments.json:
        writers.append(partial(write_json, arguments.json, scores.as_dict()))
    if arguments.csv:
        writers.append(partial(scores.write_csv, arguments.csv))
    try_all([*writers, *more])
