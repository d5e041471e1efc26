"""Caption decoders, Show, Attend and Tell's first; their objectives; the captioner a user holds."""

from captioner.caption.caption_decoder import CaptionDecoder
from captioner.caption.captioner import Captioner
from captioner.caption.captioner_folder import load_model, save_model
from captioner.caption.decoder import DecoderConfig, ShowAttendTellDecoder
from captioner.caption.hard_attention import HardAttentionLoss
from captioner.caption.objective import ObjectiveConfig, SelfCriticalConfig
from captioner.caption.self_critical import Reward, SelfCriticalLoss
from captioner.caption.training import CaptioningBatch, CaptioningLoss
from captioner.caption.transformer_decoder import TransformerDecoder, TransformerDecoderConfig
from captioner.caption.written_caption import Caption
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
