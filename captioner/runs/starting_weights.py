"""What a run takes from a trained model: sections of its config, initial weights."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.caption import Captioner
from captioner.caption.folder import FORMAT, read_config
from captioner.errors import UserError
from captioner.model_folders import is_of_format, model_folder
from captioner.schema import to_mapping
from captioner.text.vocabulary import Vocabulary
from captioner.weight_files import fill


def copy_weights(start: Captioner, captioner: Captioner, with_encoder: bool) -> None:
    """Fill a captioner's decoder and, if wanted, its encoder from those of `start`.

    Words that the vocabulary has beyond that of `start` begin as copies of `<unk>`, which they
    were, and share its probability with it.

    Raises `UserError` for the first tensor that does not fit, and for an encoder that is not to be
    filled and differs from the one that the decoder was trained on.
    """
    decoder = _with_new_words(start, len(captioner.vocabulary))
    fill(captioner.decoder, decoder, "start_from does not fit this decoder")
    if with_encoder:
        fill(captioner.encoder, start.encoder.state_dict(), "start_from does not fit this encoder")
        return
    ours, theirs = captioner.encoder.state_dict(), start.encoder.state_dict()
    for name in sorted(ours.keys() | theirs.keys()):
        has_both = name in ours and name in theirs
        if not has_both or not _equal_up_to_rounding(theirs[name], ours[name]):
            raise UserError(
                "start_from was trained on another encoder than this recipe's: tensor "
                f"{name!r} differs"
            )


def _with_new_words(start: Captioner, size: int) -> dict[str, Tensor]:
    """The decoder's weights with a row for each of `size` words."""
    tensors, known = dict(start.decoder.state_dict()), len(start.vocabulary)
    if size > known:
        rows = torch.tensor([*range(known), *[Vocabulary.unknown] * (size - known)])  # (V,)
        for name in start.decoder.word_tensors:
            tensors[name] = tensors[name][rows]
        tensors["output.bias"][rows == Vocabulary.unknown] -= math.log(1 + size - known)
    return tensors


def with_model_sections(mapping: Any) -> Any:
    """Fill the encoder, decoder, preprocessing and search of a config, given as plain values.

    Fields left out come from the model of `start_from`. Those of encoder and preprocessing come
    from the model that `encoder.weights` names. Without a model, or with a file, nothing changes,
    nor does an encoder of another name or a decoder of another kind.
    Raises `UserError` if the model's config is invalid.
    """
    if not isinstance(mapping, dict):
        return mapping
    encoder = mapping.get("encoder")
    weights = encoder.get("weights") if isinstance(encoder, dict) else None
    names = ["encoder", "preprocessing"]
    if (eyes := _folder_of(weights)) is not None and is_of_format(eyes, FORMAT):
        mapping = _with_sections(mapping, eyes, names)
    if (start := _folder_of(mapping.get("start_from"))) is not None:
        mapping = _with_sections(mapping, start, [*names, "decoder", "search"])
    return mapping


def _folder_of(model: Any) -> Path | None:
    """The folder of a model; None for a file, or for something missing, which its reader names."""
    with contextlib.suppress(UserError):
        return model_folder(model) if isinstance(model, str) else None
    return None


def _with_sections(mapping: dict[str, Any], folder: Path, names: list[str]) -> dict[str, Any]:
    model = to_mapping(read_config(folder))
    sections = {name: model[name] for name in names}
    sections["encoder"]["weights"] = str(folder)
    for section, field in (("encoder", "name"), ("decoder", "kind")):
        own = mapping.get(section)
        if isinstance(own, dict) and own.get(field) not in (None, model[section][field]):
            sections.pop(section, None)
    given = {name: mapping.get(name, {}) for name in sections}
    filled = {n: {**sections[n], **own} for n, own in given.items() if isinstance(own, dict)}
    return {**mapping, **filled}


def _equal_up_to_rounding(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors differ at most by a saved model's rounding to float16."""
    return first.shape == second.shape and torch.allclose(
        first.double(), second.double(), rtol=1e-3, atol=1e-6
    )
