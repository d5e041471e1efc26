"""A moving average of the weights, which is judged and kept in place of the last ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The exponential moving average of a model's trained weights over the steps of its training.

    After step t, counted from 0, with weights w: a = d a + (1 - d) w, where d is `decay`, or
    (1 + t) / (10 + t) while that is less, so that the average leaves the initial weights behind.
    Averages of the iterates are of Ruppert 1988 and of Polyak and Juditsky 1992, *Acceleration of
    Stochastic Approximation by Averaging*, who weigh all alike; here the early ones fade.

    Buffers, such as the running means of batch normalisation, and frozen weights are not averaged.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._parameters = [parameter for _, parameter in named]
        self._averages = [parameter.detach().clone() for parameter in self._parameters]
        self._names = [name for name, _ in named]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The averages, by the names of the parameters."""
        return dict(zip(self._names, self._averages, strict=True))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights as they are after step number `step`, counted from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        weights = [parameter.detach() for parameter in self._parameters]
        torch._foreach_lerp_(self._averages, weights, 1 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While entered, the model's weights are the averages; then they are its own again."""
        own = [parameter.detach().clone() for parameter in self._parameters]
        try:
            self._fill(self._averages)
            yield
        finally:
            self._fill(own)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)
