"""The optimisers a run can choose from."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from captioner.training.config import TrainingConfig


def make_optimizer(
    model: nn.Module, config: TrainingConfig, groups: list[dict[str, Any]] | None
) -> torch.optim.Optimizer:
    """The optimiser of a config, over the groups given or all parameters that take a gradient.

    `adam`: Kingma and Ba 2015, with the decoupled weight decay of Loshchilov and Hutter 2019, in
    torch's fused form where the device has one.
    `rmsprop`: as the authors of Xu et al. 2015 used it, in the form of Graves 2013, *Generating
    Sequences With Recurrent Neural Networks*, equations 38 to 45: the gradient's variance in place
    of its square, both means with a decay of 0.95, and a momentum of 0.9.
    """
    if groups is None:
        groups = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    optimizer: torch.optim.Optimizer
    if config.optimizer == "rmsprop":
        # Graves adds 1e-4 below the root, torch 1e-2 behind it: the same without variance.
        optimizer = torch.optim.RMSprop(
            groups, lr=config.learning_rate, alpha=0.95, eps=1e-2, momentum=0.9, centered=True
        )
    else:
        optimizer = torch.optim.AdamW(
            groups,
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=groups[0]["params"][0].device.type in ("cpu", "cuda"),
        )
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer
