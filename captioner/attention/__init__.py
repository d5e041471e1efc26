"""The attention core of captions and translations: score functions, selection, memory."""

from captioner.attention.attention import (
    Attention,
    LocalAttention,
    MultiHeadAttention,
    PredictedCentre,
)
from captioner.attention.memory import Memory, checked_mask
from captioner.attention.scores import (
    AdditiveScore,
    ConcatScore,
    DotScore,
    GeneralScore,
    ScaledDotProductScore,
    Score,
)
from captioner.attention.selection import (
    Attended,
    HardSelection,
    SoftSelection,
    draw,
    masked_softmax,
)
from captioner.attention.transformer import causal_mask

__all__ = [
    "AdditiveScore",
    "Attended",
    "Attention",
    "ConcatScore",
    "DotScore",
    "GeneralScore",
    "HardSelection",
    "LocalAttention",
    "Memory",
    "MultiHeadAttention",
    "PredictedCentre",
    "ScaledDotProductScore",
    "Score",
    "SoftSelection",
    "causal_mask",
    "checked_mask",
    "draw",
    "masked_softmax",
]
