"""Muon for convolutions of more than one pixel, AdamW for all other weights.

Jordan et al. 2024, *Muon: An optimizer for hidden layers in neural networks*: a step is the
momentum with all its singular values made about 1. Liu et al. 2025, *Muon is Scalable for LLM
Training*, equation 4: it is scaled to about the size of a step of Adam, so that one learning rate
serves both.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MOMENTUM = 0.95

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b, c: a x + b x^3 + c x^5, repeated, takes singular values of 0 to 1 to some 0.7 to 1.2."""

ITERATIONS = 5

SIZE = 0.3
"""Root mean square of a step's elements, in learning rates. Liu et al. have 0.2."""

SLOW = 0.2
"""Of `SIZE`, for kernels that begin as the identity; whole steps spoil what they pass on."""


class Muon(torch.optim.AdamW):
    """An optimiser of a model's trained weights: kernels by Muon, all else by `AdamW`.

    kernels: convolutions' weights (out, in, height, width), each one matrix (out, in x height x
        width). Those of one pixel are output layers here, which Jordan et al. leave to AdamW.
    slow: a part of the model whose kernels take smaller steps. precision: of the iteration's
        products.
    """

    def __init__(
        self,
        model: nn.Module,
        learning_rate: float,
        weight_decay: float,
        slow: nn.Module,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self._precision = precision
        self._slow = set(map(id, slow.parameters()))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._kernels = [p for p in trained if p.dim() == 4 and p[0, 0].numel() > 1]
        kernels = set(map(id, self._kernels))
        others = [parameter for parameter in trained if id(parameter) not in kernels]
        groups = [{"params": others}, {"params": self._kernels}]
        super().__init__(groups, lr=learning_rate, weight_decay=weight_decay)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make a step."""
        group = self.param_groups[1]
        gradients = [kernel.grad for kernel in self._kernels]
        for kernel, gradient in zip(self._kernels, gradients, strict=True):
            if gradient is None:
                continue
            state = self.state[kernel]
            if not state:
                state["momentum"] = torch.zeros_like(kernel)
            momentum = state["momentum"]
            momentum.lerp_(gradient, 1 - MOMENTUM)
            change = gradient.lerp(momentum, MOMENTUM).flatten(1)  # (out, in * height * width)
            change = orthogonalise(change, self._precision).view_as(kernel)
            size = SIZE * (SLOW if id(kernel) in self._slow else 1)
            size *= max(len(kernel), kernel[0].numel()) ** 0.5
            kernel.mul_(1 - group["lr"] * group["weight_decay"])
            kernel.sub_(change, alpha=group["lr"] * size)
            kernel.grad = None  # AdamW skips it.
        super().step()
        for kernel, gradient in zip(self._kernels, gradients, strict=True):
            kernel.grad = gradient


def orthogonalise(matrix: Tensor, precision: torch.dtype = torch.float32) -> Tensor:
    """A matrix (M, N) with its singular values made about 1, by Newton and Schulz's iteration."""
    a, b, c = COEFFICIENTS
    wide = matrix if len(matrix) <= matrix.shape[1] else matrix.T  # the smaller products
    x = (wide / (wide.norm() + 1e-7)).to(precision)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    x = x.to(matrix.dtype)
    return x if wide is matrix else x.T
