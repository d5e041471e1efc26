"""Recurrent networks as ONNX's operators LSTM and GRU, for `captioner.backends.export`.

torch.onnx cannot export `nn.LSTM` and `nn.GRU` with packed sequences. Here each layer calls a
custom operator, which the exporter replaces.
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
    inputs: Any, weight: Any, recurrent: Any, bias: Any, lengths: Any, hidden: Any, cell: Any
) -> Any:
    """The operator of ONNX for `_layer`."""
    size = recurrent.shape[2]
    direction = "bidirectional" if weight.shape[0] == 2 else "forward"
    given = inputs, weight, recurrent, bias, lengths, hidden
    if weight.shape[1] == len(_GATES[nn.LSTM]) * size:
        return _operators.LSTM(*given, cell, hidden_size=size, direction=direction)
    options = {"hidden_size": size, "direction": direction, "linear_before_reset": 1}
    outputs, last = _operators.GRU(*given, **options)
    return outputs, last, last


RECURRENT: dict[Any, Any] = {torch.ops.captioner.recurrent_layer.default: _translate}
"""An entry of the exporter's translation table."""


class _RecurrentGraph(RecurrentNetwork):
    """A `RecurrentNetwork` computed by ONNX's operators."""

    def __init__(self, network: nn.LSTM | nn.GRU) -> None:
        nn.Module.__init__(self)
        self.network = network

    def encode(self, embedded: Tensor, mask: Tensor | None = None) -> tuple[Tensor, RecurrentState]:
        """Embeddings (B, S, E), mask (B, S) -> outputs (B, S, D), states (B, 1, layers, D)."""
        lengths = None if mask is None else mask.sum(dim=1).int()  # (B,)
        outputs, final = self._run(embedded, lengths=lengths)
        return outputs, tuple(map(self._by_source, final))

    def _run(
        self, inputs: Tensor, state: RecurrentState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Inputs (B, S, I), lengths (B,), states (layers, B, H) -> outputs (B, S, D), states."""
        outputs = inputs.transpose(0, 1)  # (S, B, I)
        layers = []
        for layer in range(self.network.num_layers):
            hidden, cell, *_ = *(part[layer : layer + 1] for part in state or ()), None, None
            weight, recurrent, bias = self._weights(layer)
            outputs, *states = _operator(
                outputs, weight, recurrent, bias, lengths, hidden, cell
            )  # (S, directions, B, H), (directions, B, H) each
            outputs = outputs.transpose(1, 2).flatten(2)  # (S, B, D)
            layers.append(states if isinstance(self.network, nn.LSTM) else states[:1])
        final = tuple(map(torch.cat, zip(*layers, strict=True)))  # (layers * directions, B, H) each
        return outputs.transpose(0, 1).contiguous(), final

    def _weights(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """The weights (2 or 1, G H, I), (2 or 1, G H, H) and (2 or 1, 2 G H) of ONNX."""
        directions = ["", "_reverse"] if self.network.bidirectional else [""]
        gates = _GATES[type(self.network)]

        def stacked(name: str) -> Tensor:
            parts = []
            for direction in directions:
                whole = getattr(self.network, f"{name}_l{layer}{direction}").chunk(len(gates))
                parts.append(torch.cat([whole[gate] for gate in gates]))
            return torch.stack(parts)

        bias = torch.cat([stacked("bias_ih"), stacked("bias_hh")], dim=-1)
        return stacked("weight_ih"), stacked("weight_hh"), bias


def with_operators(model: Model) -> Model:
    """Replace the recurrent networks of a model, in place, by ONNX's operators; returns it."""
    for name, child in model.named_children():
        if isinstance(child, RecurrentNetwork):
            setattr(model, name, _RecurrentGraph(child.network))
        else:
            with_operators(child)
    return model
