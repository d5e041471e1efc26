"""A moving average of the weights, validated and kept in place of the last weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class Average:
    """The exponential moving average of a model's trained weights.

    After step t, counted from 0, with weights w: a = d a + (1 - d) w, where d is `decay`, or
    (1 + t) / (10 + t) while that is less, so that the initial weights fade quickly. Ruppert 1988
    and Polyak and Juditsky 1992, *Acceleration of Stochastic Approximation by Averaging*, weigh all
    iterates equally; here the early ones fade.

    Buffers (running means of batch normalisation) and frozen weights are not averaged.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.tensors = self._weights()
        """The averages, by parameter name."""

    def update(self, step: int) -> None:
        """Add the weights after step number `step`, counted from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        weights = [parameter.detach() for parameter in self._parameters.values()]
        add = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        add(list(self.tensors.values()), weights, step)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it, the model's weights are the averages."""
        weights = self._weights()
        try:
            self._fill(self.tensors)
            yield
        finally:
            self._fill(weights)

    def _weights(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def _fill(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self._parameters[name].copy_(value)
