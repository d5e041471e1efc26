"""Sections of a config that follow from its encoder."""

from __future__ import annotations

from typing import Any

from captioner.schema import to_mapping
from captioner.vision.encoders import family_of, make_encoder
from captioner.vision.preprocessing import Preprocessing


def with_encoder_sections(mapping: Any) -> Any:
    """Fill the preprocessing and `decoder.memory_size` of a config, given as plain values.

    Fields left out are those of the encoder's published weights; `resize_shorter` is in proportion
    to `size`. Raises `UserError` if the encoder's library is missing or does not know its name.
    """
    given = mapping if isinstance(mapping, dict) else {}
    encoder: Any = given.get("encoder", {})
    decoder: Any = given.get("decoder", {})
    preprocessing: Any = given.get("preprocessing", {})
    if not all(isinstance(section, dict) for section in (mapping, encoder, decoder, preprocessing)):
        return mapping
    try:
        family = family_of(encoder.get("name", "vgg19"))
    except ValueError:  # Validation names it.
        return mapping
    config = family.config.model_validate({"name": encoder["name"]} if "name" in encoder else {})
    published = family.encoder.published_preprocessing(config)
    own = {} if published is None else to_mapping(published)
    standard, size = published or Preprocessing(), preprocessing.get("size")
    if isinstance(size, int) and preprocessing.get("resize", standard.resize) == "crop":
        own["resize_shorter"] = standard.resize_shorter * size // standard.size
    if own:
        preprocessing = {**own, **preprocessing}
    if "memory_size" not in decoder:
        has_one_size = hasattr(family.encoder, "annotation_size")
        sized = family.encoder if has_one_size else make_encoder(config)
        decoder = {**decoder, "memory_size": sized.annotation_size}
    return {**mapping, "decoder": decoder, "preprocessing": preprocessing}
