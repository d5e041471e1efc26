"""Recurrent networks as ONNX's operators LSTM and GRU, for `captioner.backends.export`.

torch's exporter has no translation of its own networks, whose sequences are packed by their
lengths. Here each layer is a call of an operator that only the exporter computes.
"""

from typing import Any, TypeVar

import torch
from onnxscript import opset18
from torch import Tensor, nn

from captioner.models.translation_model import RecurrentNetwork, RecurrentState

_GATES = {nn.LSTM: (0, 3, 1, 2), nn.GRU: (1, 0, 2)}
"""ONNX's order of torch's gates: input, output, forget, cell; update, reset, hidden."""

Model = TypeVar("Model", bound=nn.Module)

_operators: Any = opset18


def _layer(
    inputs: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Tensor,
    lengths: Tensor | None,
    hidden: Tensor | None,
    cell: Tensor | None,
    is_lstm: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros of the shapes of a layer's outputs (S, 2 or 1, B, H), hidden state and cell.

    inputs: (S, B, I). weight, recurrent, bias: of both directions, or one, in ONNX's form. lengths:
    (B,). hidden, cell: (2 or 1, B, H), before the first step.
    """
    directions, size = len(weight), recurrent.shape[-1]
    state = inputs.new_zeros(directions, inputs.shape[1], size)
    return inputs.new_zeros(inputs.shape[0], *state.shape), state, torch.zeros_like(state)


_operator = torch.library.custom_op("captioner::recurrent_layer", _layer, mutates_args=())
_operator.register_fake(_layer)


def _translate(
    inputs: Any,
    weight: Any,
    recurrent: Any,
    bias: Any,
    lengths: Any,
    hidden: Any,
    cell: Any,
    is_lstm: bool,
) -> Any:
    """The operator of ONNX for `_layer`."""
    direction = "bidirectional" if weight.shape[0] == 2 else "forward"
    sizes: dict[str, Any] = {"hidden_size": recurrent.shape[2], "direction": direction}
    given = (inputs, weight, recurrent, bias, lengths, hidden)
    if is_lstm:
        return _operators.LSTM(*given, cell, **sizes)
    outputs, last = _operators.GRU(*given, **sizes, linear_before_reset=1)
    return outputs, last, last


TRANSLATIONS: dict[Any, Any] = {torch.ops.captioner.recurrent_layer.default: _translate}
"""For the exporter."""


class _RecurrentGraph(nn.Module):
    """A `RecurrentNetwork` by ONNX's operators."""

    def __init__(self, network: nn.LSTM | nn.GRU) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Inputs (B, K, T, I), states (B, K, layers, H) -> outputs (B, K, T, H), states."""
        rows = inputs.shape[:2]
        before = [part.flatten(end_dim=1).transpose(0, 1) for part in state]  # (layers, B K, H)
        outputs, after = self._run(inputs.flatten(end_dim=1), None, before)  # (B K, T, H)
        states = (part.view(*rows, *part.shape[1:]) for part in after)  # (B, K, layers, H) each
        return outputs.reshape(*inputs.shape[:3], -1), tuple(states)  # (B, K, T, H)

    def encode(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, RecurrentState]:
        """Embeddings (B, S, E), mask (B, S) -> outputs (B, S, D), states (B, 1, layers, D)."""
        outputs, after = self._run(embedded, mask.sum(dim=1).int(), None)
        return outputs, tuple(part.unsqueeze(1) for part in after)

    def _run(
        self, inputs: Tensor, lengths: Tensor | None, before: list[Tensor] | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Inputs (B, S, I), states (layers, B, H) -> outputs (B, S, D), states (B, layers, D)."""
        is_lstm = isinstance(self.network, nn.LSTM)
        outputs = inputs.transpose(0, 1)  # (S, B, I)
        layers: list[list[Tensor]] = []
        for layer in range(self.network.num_layers):
            states: list[Tensor | None] = [None, None]
            for place, part in enumerate(before or ()):
                states[place] = part[layer : layer + 1]  # (1, B, H)
            weights = self._weights(layer)
            outputs, *after = _operator(outputs, *weights, lengths, *states, is_lstm)
            outputs = outputs.transpose(1, 2).flatten(2)  # (S, B, D)
            after = after[: 1 + is_lstm]
            layers.append([part.transpose(0, 1).flatten(1) for part in after])  # (B, D) each
        final = [torch.stack(parts, dim=1) for parts in zip(*layers, strict=True)]
        return outputs.transpose(0, 1), final

    def _weights(self, layer: int) -> list[Tensor]:
        """The weights (2 or 1, G H, I), (2 or 1, G H, H) and (2 or 1, 2 G H) of ONNX."""
        directions = ["", "_reverse"][: 2 if self.network.bidirectional else 1]

        def stacked(name: str) -> Tensor:
            parts = []
            for direction in directions:
                whole = getattr(self.network, f"{name}_l{layer}{direction}")
                gates = whole.chunk(len(_GATES[type(self.network)]))
                parts.append(torch.cat([gates[gate] for gate in _GATES[type(self.network)]]))
            return torch.stack(parts)

        weight, recurrent, *biases = map(stacked, ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        return [weight, recurrent, torch.cat(biases, dim=-1)]


def with_operators(model: Model) -> Model:
    """Replace the recurrent networks of a model, in place, by ONNX's operators; returns it."""
    for name, child in model.named_children():
        if isinstance(child, RecurrentNetwork):
            setattr(model, name, _RecurrentGraph(child.network))
        else:
            with_operators(child)
    return model
