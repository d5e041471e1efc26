"""The learning rate as a function of the step and the validation scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from captioner.training.config import TrainingConfig


def learning_rate_factor(
    config: TrainingConfig, step: int, total_steps: int, scores: Sequence[float]
) -> float:
    """The factor of the learning rate at `step` (counted from 0), in [0, 1].

    scores: validation scores so far, higher is better; only `plateau` uses them.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "cosine":
        span = max(1, total_steps - config.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - config.warmup_steps) / span)))
    if config.schedule == "inverse_square_root":
        return math.sqrt(max(1, config.warmup_steps) / (step + 1))
    if config.schedule == "plateau":
        return float(config.decay_factor ** _plateaus(scores, config.decay_patience))
    return 1.0


def validations_since_best(scores: Sequence[float]) -> int:
    """Number of validations since the first occurrence of the best score."""
    return len(scores) - 1 - scores.index(max(scores)) if scores else 0


def _plateaus(scores: Sequence[float], patience: int) -> int:
    """Number of times that `patience` scores in a row did not improve."""
    best, waited, plateaus = -math.inf, 0, 0
    for score in scores:
        if score > best:
            best, waited = score, 0
        else:
            waited += 1
            if waited >= patience:
                plateaus, waited = plateaus + 1, 0
    return plateaus
