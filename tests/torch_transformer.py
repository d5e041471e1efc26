"""Weights of torch's Transformer layers, copied to ours."""

from typing import Any

from torch import nn

from captioner.attention.attention import MultiHeadAttention
from captioner.attention.transformer import FeedForward


def copy_attention(own: MultiHeadAttention, other: nn.MultiheadAttention) -> None:
    weights, biases = other.in_proj_weight.chunk(3), other.in_proj_bias.chunk(3)
    layers = own.query_projection, own.key_projection, own.value_projection
    for layer, weight, bias in zip(layers, weights, biases, strict=True):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    own.output_projection.load_state_dict(other.out_proj.state_dict())


def copy_network(own: FeedForward, other: nn.Module) -> None:
    own.inner.load_state_dict(other.linear1.state_dict())
    own.outer.load_state_dict(other.linear2.state_dict())


def copy_decoder_layer(own: Any, other: Any) -> None:
    copy_attention(own.self_attention, other.self_attn)
    copy_attention(own.cross_attention, other.multihead_attn)
    copy_network(own.feed_forward, other)
    own.around_attention.norm.load_state_dict(other.norm1.state_dict())
    own.around_cross.norm.load_state_dict(other.norm2.state_dict())
    own.around_network.norm.load_state_dict(other.norm3.state_dict())
