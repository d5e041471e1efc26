"""A moving average of the weights, validated and kept in place of the last weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._parameters = [parameter for _, parameter in named]
        self._averages = [parameter.detach().clone() for parameter in self._parameters]
        self._names = [name for name, _ in named]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The averages, by parameter name."""
        return dict(zip(self._names, self._averages, strict=True))

    def update(self, step: int) -> None:
        """Add the weights after step number `step`, counted from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        weights = [parameter.detach() for parameter in self._parameters]
        get_ema_multi_avg_fn(decay)(self._averages, weights, step)  # type: ignore[no-untyped-call]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it, the model's weights are the averages."""
        weights = [parameter.detach().clone() for parameter in self._parameters]
        try:
            self._fill(self._averages)
            yield
        finally:
            self._fill(weights)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)
