"""Caption decoders, Show, Attend and Tell's first; their objectives; the captioner a user holds.

Modules are imported on first use: captions need no torch, decoders do.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner.caption.base import CaptionDecoder as CaptionDecoder
    from captioner.caption.caption import Caption as Caption
    from captioner.caption.captioner import Captioner as Captioner
    from captioner.caption.folder import load_model as load_model
    from captioner.caption.folder import save_model as save_model
    from captioner.caption.losses import CaptioningBatch as CaptioningBatch
    from captioner.caption.losses import CaptioningLoss as CaptioningLoss
    from captioner.caption.losses import ObjectiveConfig as ObjectiveConfig
    from captioner.caption.losses import SelfCriticalConfig as SelfCriticalConfig
    from captioner.caption.lstm import DecoderConfig as DecoderConfig
    from captioner.caption.lstm import ShowAttendTellDecoder as ShowAttendTellDecoder
    from captioner.caption.reinforce import HardAttentionLoss as HardAttentionLoss
    from captioner.caption.reinforce import Reward as Reward
    from captioner.caption.reinforce import SelfCriticalLoss as SelfCriticalLoss
    from captioner.caption.transformer import TransformerDecoder as TransformerDecoder
    from captioner.caption.transformer import TransformerDecoderConfig as TransformerDecoderConfig

_NAMES = {
    "base": ("CaptionDecoder",),
    "caption": ("Caption",),
    "captioner": ("Captioner",),
    "folder": ("load_model", "save_model"),
    "losses": ("CaptioningBatch", "CaptioningLoss", "ObjectiveConfig", "SelfCriticalConfig"),
    "lstm": ("DecoderConfig", "ShowAttendTellDecoder"),
    "reinforce": ("HardAttentionLoss", "Reward", "SelfCriticalLoss"),
    "transformer": ("TransformerDecoder", "TransformerDecoderConfig"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
