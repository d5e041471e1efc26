"""Averages the weights of several models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioner.caption import Captioner, load_model, save_model
from captioner.errors import UserError
from captioner.files import atomic_folder, file_keys
from captioner.schema import flat, to_mapping
from captioner.translate import Translator, load_translator, save_translator
from captioner.translate.translator_folder import is_translator


def average_models(folders: Sequence[str | Path], out: str | Path) -> None:
    """Write a model whose weights are the means of several models.

    Meant for the last models of one run: Vaswani et al. 2017, section 6.1, average the last 5
    checkpoints; Izmailov et al. 2018, *Averaging Weights Leads to Wider Optima and Better
    Generalization*. Batch normalisation's means and variances are averaged too; integers are the
    first model's.

    folders: captioners or translators with one configuration and vocabulary. Search options and
        card are the first one's. A confidence is dropped: it was fitted to other weights.
    out: written whole or not at all.

    Raises `UserError` for fewer than two models, one given twice or not loadable, models that
    differ in more than their weights, and a folder that cannot be written.
    """
    if len(folders) < 2:
        raise UserError(f"an average needs two models or more, not {len(folders)}")
    _check_distinct(folders)
    with atomic_folder(out) as temporary:
        first = _load(folders[0])
        sums = {name: _wide(tensor) for name, tensor in _tensors(first).items()}
        for folder in folders[1:]:
            model = _load(folder)
            _check_same(first, folders[0], model, folder)
            for name, tensor in _tensors(model).items():
                if tensor.is_floating_point():
                    sums[name] += tensor
        for name, tensor in _tensors(first).items():
            if tensor.is_floating_point():
                tensor.copy_(sums[name] / len(folders))
        line = f"The mean of the weights of {len(folders)} models."
        card = f"{line}\n\n{first.card}" if first.card else f"{line}\n"
        if isinstance(first, Translator):
            save_translator(replace(first, card=card), temporary)
        else:
            save_model(replace(first, card=card, confidence=None), temporary)


def _check_distinct(folders: Sequence[str | Path]) -> None:
    seen: set[object] = set()
    for folder in folders:
        keys = file_keys(folder)
        if keys & seen:
            raise UserError(f"model {folder} is given twice")
        seen |= keys


def _load(folder: str | Path) -> Captioner | Translator:
    return load_translator(folder) if is_translator(folder) else load_model(folder)


def _tensors(model: Captioner | Translator) -> dict[str, Tensor]:
    """The weights and buffers, not copies, by part and name."""
    parts: dict[str, nn.Module] = {}
    if isinstance(model, Translator):
        parts["model"] = model.model
    else:
        parts |= {"encoder": model.encoder, "decoder": model.decoder}
    return {f"{part}.{n}": t for part, m in parts.items() for n, t in m.state_dict().items()}


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor


def _check_same(
    first: Captioner | Translator, path: str | Path, other: Captioner | Translator, own: str | Path
) -> None:
    """Raise `UserError` for the first difference of two models besides their weights."""
    refusal = f"{own} cannot be averaged with {path}"
    if isinstance(first, Translator) != isinstance(other, Translator):
        raise UserError(f"{refusal}: one is a captioner and one a translator")
    one, two = _settings(first), _settings(other)
    for name in sorted(one.keys() | two.keys()):
        if one.get(name) != two.get(name):
            raise UserError(f"{refusal}: its {name} is {two.get(name)!r}, not {one.get(name)!r}")
    vocabularies = _vocabularies(other)
    for side, vocabulary in _vocabularies(first).items():
        if vocabulary != vocabularies[side]:
            raise UserError(f"{refusal}: its {side} differs")


def _settings(model: Captioner | Translator) -> dict[str, Any]:
    """The config fields that the weights depend on, by name."""
    if isinstance(model, Translator):
        return {
            "maximum_source_length": model.maximum_source_length,
            **flat(to_mapping(model.config), "model."),
        }
    return {
        **flat(to_mapping(model.encoder.config), "encoder."),
        **flat(to_mapping(model.decoder.config), "decoder."),
        **flat(to_mapping(model.preprocessing), "preprocessing."),
    }


def _vocabularies(model: Captioner | Translator) -> dict[str, object]:
    if isinstance(model, Translator):
        return {"source vocabulary": model.source, "target vocabulary": model.target}
    return {"vocabulary": model.vocabulary}
