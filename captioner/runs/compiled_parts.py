"""Compiles the parts of a model where a training step spends its time."""

from __future__ import annotations

from torch import nn

from captioner.attention import Attention
from captioner.attention.transformer_layers import DecoderLayer, EncoderLayer
from captioner.vision.encoder import Encoder

PARTS = (Attention, EncoderLayer, DecoderLayer, Encoder)


def compile_parts(model: nn.Module) -> None:
    """Have torch compile attention, Transformer layers and the encoder, at their first call.

    Not the whole model: a loop over the words of captions would be compiled anew for every length.
    On a GPU additive attention becomes one kernel in place of four: sum, tanh, product with v,
    softmax.
    """
    for module in model.modules():
        if isinstance(module, PARTS):
            module.compile()
