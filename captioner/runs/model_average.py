"""Averages the weights of several models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from captioner.caption import Captioner, load_model, save_model
from captioner.errors import UserError
from captioner.files import atomic_folder
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

    Raises `UserError` for fewer than two models, one that is not loadable, models that differ in
    more than their weights, and a folder that cannot be written.
    """
    if len(folders) < 2:
        raise UserError(f"an average needs two models or more, not {len(folders)}")
    with atomic_folder(out) as temporary:
        first = _load(folders[0])
        weights = _weights(first)
        sums = {name: tensor.double() for name, tensor in weights.items()}
        for folder in folders[1:]:
            model = _load(folder)
            if _settings(model) != _settings(first):
                raise UserError(
                    f"{folder} cannot be averaged with {folders[0]}: kind, sizes, preprocessing "
                    "or vocabulary differ"
                )
            for name, tensor in _weights(model).items():
                sums[name] += tensor
        for name, tensor in weights.items():
            tensor.copy_(sums[name] / len(folders))
        line = f"The mean of the weights of {len(folders)} models."
        card = f"{line}\n\n{first.card}" if first.card else f"{line}\n"
        if isinstance(first, Translator):
            save_translator(replace(first, card=card), temporary)
        else:
            save_model(replace(first, card=card, confidence=None), temporary)


def _load(folder: str | Path) -> Captioner | Translator:
    return load_translator(folder) if is_translator(folder) else load_model(folder)


def _weights(model: Captioner | Translator) -> dict[str, Tensor]:
    """The floating-point weights and buffers, not copies, by name."""
    if isinstance(model, Translator):
        parts = nn.ModuleDict({"model": model.model})
    else:
        parts = nn.ModuleDict({"encoder": model.encoder, "decoder": model.decoder})
    return {name: t for name, t in parts.state_dict().items() if t.is_floating_point()}


def _settings(model: Captioner | Translator) -> tuple[object, ...]:
    """What the weights depend on."""
    if isinstance(model, Translator):
        return model.config, model.source, model.target, model.maximum_source_length
    configs = model.encoder.config, model.decoder.config, model.preprocessing
    return *configs, model.vocabulary
