"""Caption decoders, Show, Attend and Tell's first; their objectives; the captioner a user holds."""

from captioner.caption.base import CaptionDecoder
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.folder import load_model, save_model
from captioner.caption.losses import (
    CaptioningBatch,
    CaptioningLoss,
    ObjectiveConfig,
    SelfCriticalConfig,
)
from captioner.caption.lstm import DecoderConfig, ShowAttendTellDecoder
from captioner.caption.reinforce import HardAttentionLoss, Reward, SelfCriticalLoss
from captioner.caption.transformer import TransformerDecoder, TransformerDecoderConfig
from captioner.outcomes import Failed

__all__ = [
    "Caption",
    "CaptionDecoder",
    "Captioner",
    "CaptioningBatch",
    "CaptioningLoss",
    "DecoderConfig",
    "Failed",
    "HardAttentionLoss",
    "ObjectiveConfig",
    "Reward",
    "SelfCriticalConfig",
    "SelfCriticalLoss",
    "ShowAttendTellDecoder",
    "TransformerDecoder",
    "TransformerDecoderConfig",
    "load_model",
    "save_model",
]
