"""The packaged models, each in a folder of its name, and loading by name or path."""

from __future__ import annotations

import os
from functools import cache, partial
from typing import TYPE_CHECKING

from captioner.errors import UserError
from captioner.model_folders import model_folder

if TYPE_CHECKING:
    import torch

    from captioner.caption.captioner import Captioner
    from captioner.caption.photos import Translate
    from captioner.translate.translator import Translator

DEFAULT = "default"
DEFAULT_TRANSLATOR = "english_german"
LANGUAGES = {"de": DEFAULT_TRANSLATOR, "fr": "english_french"}
"""The packaged translator into each language."""


def load(
    name_or_path: str | os.PathLike[str] = DEFAULT,
    device: torch.device | str = "cpu",
    precision: str = "float32",
) -> Captioner:
    """Load a captioner: the packaged one by default, another by name, folder or `hf://user/name`.

    device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for the best available.
    precision: of the encoder: `float32`, or `bfloat16`, which takes less time on a CPU with
        instructions for it and gives another caption of about the same score for 3 photos in 100.

    To train or save a model, use `load_model` of `captioner.caption.folder` instead.
    """
    from captioner.caption.folder import load_model
    from captioner.devices import choose_device, choose_precision

    chosen = choose_device(device)
    model = load_model(model_folder(name_or_path), chosen)
    model.load_translation = partial(load_translation, device=chosen, precision=precision)
    return model.for_inference(choose_precision(precision))


def load_translator(
    name_or_path: str | os.PathLike[str] = DEFAULT_TRANSLATOR,
    device: torch.device | str = "cpu",
    precision: str = "float32",
) -> Translator:
    """Load a translator: the packaged one by default, another as `load` does."""
    from captioner.devices import choose_device, choose_precision
    from captioner.translate.translator import load_translator as load_from

    chosen = choose_device(device)
    translator = load_from(model_folder(name_or_path), chosen)
    translator.precision = choose_precision(precision)
    return translator


@cache
def load_translation(
    language: str,
    translator: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    precision: str = "float32",
) -> Translate:
    """Load a translator, once, and return the function that translates captions with it.

    language: a tag, such as "de" or "de-CH". translator: by default the packaged one into it.
    """
    from captioner.translate.translated_captions import check_aligns, translate_captions

    name = translator or LANGUAGES.get(language.partition("-")[0])
    if name is None:
        known = ", ".join(LANGUAGES)
        raise UserError(f"captions in {language} need a translator; the package has {known}")
    loaded = load_translator(name, device, precision)
    check_aligns(loaded)
    return partial(translate_captions, translator=loaded, language=language)
