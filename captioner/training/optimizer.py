"""The optimiser, the schedule of its learning rate, and the moving average of weights."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from captioner.training.config import TrainingConfig

ParameterGroups = list[dict[str, Any]]
"""The groups of an optimiser: `params`, and options such as `lr`."""


def make_optimizer(
    model: nn.Module, config: TrainingConfig, groups: ParameterGroups | None = None
) -> torch.optim.Optimizer:
    """The optimiser of a config, over the parameters that require a gradient.

    groups: parameter groups, each with an optional `lr`; None for all in one.

    `adam`: Kingma and Ba 2015, with the decoupled weight decay of Loshchilov and Hutter 2019, of
    matrices and convolutions only: not of biases, normalisation and embeddings.
    `rmsprop`: that of Xu et al. 2015, in the form of Graves 2013, *Generating Sequences With
    Recurrent Neural Networks*, equations 38 to 45: divides by the gradient's variance in place of
    its mean square; decay 0.95, momentum 0.9.
    """
    groups = [
        {**group, "params": [p for p in group["params"] if p.requires_grad]}
        for group in groups or [{"params": model.parameters()}]
    ]
    if config.optimizer == "rmsprop":
        # Graves adds 1e-4 under the root, torch 1e-2 outside: equal where the variance is 0.
        return torch.optim.RMSprop(
            groups, lr=config.learning_rate, alpha=0.95, eps=1e-2, momentum=0.9, centered=True
        )
    fused = groups[0]["params"][0].device.type in ("cpu", "cuda")
    if config.weight_decay > 0:
        tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        decayed = {id(p) for p in model.parameters() if p.dim() > 1} - tables
        divided = []
        for group in groups:
            matrices = [p for p in group["params"] if id(p) in decayed]
            others = [p for p in group["params"] if id(p) not in decayed]
            divided.append({**group, "params": matrices, "weight_decay": config.weight_decay})
            divided.append({**group, "params": others})
        groups = [group for group in divided if group["params"]]
    return torch.optim.AdamW(groups, lr=config.learning_rate, weight_decay=0.0, fused=fused)


def learning_rate_factor(
    config: TrainingConfig, step: int, total_steps: int, scores: Sequence[list[float]]
) -> float:
    """The learning rate's factor, in [0, 1], at `step` (from 0), after a `Position`'s scores."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "cosine":
        span = max(1, total_steps - config.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - config.warmup_steps) / span)))
    if config.schedule == "inverse_square_root":
        return math.sqrt(max(1, config.warmup_steps) / (step + 1))
    if config.schedule == "plateau":
        best, waited, plateaus = [-math.inf, -math.inf], 0, 0
        for score in scores:
            waited = 0 if score > best else waited + 1
            best = max(best, score)
            if waited == config.decay_patience:
                plateaus += 1
                waited = 0
        return float(config.decay_factor**plateaus)
    return 1.0


def warn_of_spans(config: TrainingConfig, steps: int) -> None:
    """Print a sentence if warm-up takes over half of a run's steps, or averaging more than all."""
    average = 1 / (1 - config.average)
    spans = [("warmup_steps", config.warmup_steps, steps / 2), ("average", average, steps)]
    for name, span, longest in spans:
        if span > longest:
            print(f"training.{name} spans {span:,.0f} steps, the run has {steps:,}: lower it")


class Average:
    """The exponential moving average of a model's trained weights; none where `decay` is 0.

    After step t, counted from 0, with weights w: a = d a + (1 - d) w, where d is `decay`, or
    (1 + t) / (10 + t) while that is less, so that the initial weights fade quickly. Buffers
    (running means of batch normalisation) and frozen weights are not averaged.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._parameters = trained if decay > 0 else {}
        self.tensors = {name: p.detach().clone() for name, p in self._parameters.items()}

    def update(self, step: int) -> None:
        """Add the weights after step number `step`, counted from 0."""
        if weights := [parameter.detach() for parameter in self._parameters.values()]:
            decay = min(self.decay, (1 + step) / (10 + step))
            add = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            add(list(self.tensors.values()), weights, step)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Give the model the averages as weights while the block runs."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.data, self.tensors[name] = self.tensors[name], parameter.data
