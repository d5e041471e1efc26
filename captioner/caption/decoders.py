"""The kinds of caption decoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from captioner.caption.caption_decoder import CaptionDecoder, CaptionDecoderConfig
from captioner.caption.decoder import DecoderConfig, ShowAttendTellDecoder
from captioner.caption.transformer_decoder import TransformerDecoder, TransformerDecoderConfig
from captioner.errors import did_you_mean, near_names

KINDS: dict[str, tuple[Callable[[Any, int], CaptionDecoder], type[CaptionDecoderConfig]]] = {
    "lstm": (ShowAttendTellDecoder, DecoderConfig),
    "transformer": (TransformerDecoder, TransformerDecoderConfig),
}
"""Decoder and config of each kind, by `CaptionDecoderConfig.kind`."""


def decoder_config(values: Any) -> Any:
    """Validate the fields of a decoder by its kind; for pydantic's validators."""
    if not isinstance(values, Mapping):
        return values
    kind = values.get("kind", "lstm")
    if not isinstance(kind, str) or kind not in KINDS:
        near = did_you_mean(near_names(kind, KINDS))
        raise ValueError(f"kind {kind!r} is not one of {', '.join(KINDS)}{near}")
    own = KINDS[kind][1]
    for name in values:
        owners = [other for other, (_, each) in KINDS.items() if name in each.model_fields]
        if owners and name not in own.model_fields:
            raise ValueError(f"{name} is for kind {', '.join(owners)}, and kind is {kind}")
    return own.model_validate(dict(values))


def make_decoder(config: CaptionDecoderConfig, vocabulary_size: int) -> CaptionDecoder:
    """The decoder of a configuration for so many words, with fresh weights."""
    return KINDS[config.kind][0](config, vocabulary_size)
