"""The optimisers of `training.optimizer`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from captioner.training.config import TrainingConfig


def make_optimizer(
    model: nn.Module, config: TrainingConfig, groups: list[dict[str, Any]] | None = None
) -> torch.optim.Optimizer:
    """The optimiser of a config, over the groups or all parameters that require a gradient.

    groups: parameter groups, each with an optional `lr`.

    `adam`: Kingma and Ba 2015, with the decoupled weight decay of Loshchilov and Hutter 2019; fused
    on CPU and CUDA.
    `rmsprop`: that of Xu et al. 2015, in the form of Graves 2013, *Generating Sequences With
    Recurrent Neural Networks*, equations 38 to 45: divides by the gradient's variance in place of
    its mean square; decay 0.95, momentum 0.9.
    """
    if groups is None:
        groups = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    if config.optimizer == "rmsprop":
        # Graves adds 1e-4 under the root, torch 1e-2 outside: equal where the variance is 0.
        return torch.optim.RMSprop(
            groups, lr=config.learning_rate, alpha=0.95, eps=1e-2, momentum=0.9, centered=True
        )
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=groups[0]["params"][0].device.type in ("cpu", "cuda"),
    )
