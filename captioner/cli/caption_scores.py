"""The score options that `captioner evaluate` and `captioner score` share."""

from __future__ import annotations

import argparse

from captioner.evaluation.evaluation_options import DEFAULT_METRICS, METRICS


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
