"""Loads captioners and translators by name, path or address; the packaged ones by default."""

from __future__ import annotations

import os
from functools import cache, partial
from typing import TYPE_CHECKING

from captioner.errors import UserError
from captioner.model_folders import ModelFolder, model_folder

if TYPE_CHECKING:
    import torch

    from captioner.backends.engines import EngineName
    from captioner.caption.captioner import Captioner, Translate
    from captioner.translate.translator import Translator

DEFAULT = "default"
DEFAULT_TRANSLATOR = "english_german"
LANGUAGES = {"de": DEFAULT_TRANSLATOR, "fr": "english_french"}
"""The packaged translator into each language."""


def load(
    name_or_path: str | os.PathLike[str] = DEFAULT,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    engine: EngineName = "auto",
) -> Captioner:
    """Load a captioner: the packaged one, or by name, folder or `hf://user/name`.

    device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for the best available.
    precision: of the encoder: `float32`, or `bfloat16`, which takes less time on a CPU with
        instructions for it and gives another caption of about the same score for 3 photos in 100.
    engine: computes the networks: `graphs`, the ONNX graphs of the folder, which need no torch, or
        `torch`. `auto` takes the graphs on a CPU in float32, where the folder has them. A folder
        of a backend of another package has one engine, its own.

    To train or save a model, use `load_model` of `captioner.caption.folder` instead.
    """
    from captioner.backends.engines import open_backend
    from captioner.caption.captioner import Captioner
    from captioner.caption.config import captioner_config

    folder = ModelFolder(model_folder(name_or_path))
    config = captioner_config(folder)
    return Captioner(
        open_backend(folder, "captioner", device, precision, engine),
        config.search,
        config.confidence,
        folder.card,
        partial(load_translation, device=device, precision=precision, engine=engine),
    )


def load_translator(
    name_or_path: str | os.PathLike[str] = DEFAULT_TRANSLATOR,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    engine: EngineName = "auto",
) -> Translator:
    """Load a translator: the packaged one by default, another as `load` does."""
    from captioner.backends.engines import open_backend
    from captioner.translate.config import TranslatorConfig
    from captioner.translate.translator import Translator

    folder = ModelFolder(model_folder(name_or_path))
    config = folder.read("translator", TranslatorConfig)
    return Translator(
        open_backend(folder, "translator", device, precision, engine),
        config.maximum_source_length,
        config.search,
        folder.card,
        config.capitals,
        config.unsure_below,
    )


def load_translation(
    language: str,
    translator: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    engine: EngineName = "auto",
    without: frozenset[str] = frozenset(),
) -> Translate:
    """Load a translator and return the function that translates captions with it.

    language: a tag, such as "de" or "de-CH". translator: by default the packaged one into it.
    without: English words, see `avoiding`.
    """
    from captioner.translate.translated_captions import avoiding, check_aligns, translate_captions

    packaged = LANGUAGES.get(language.partition("-")[0])
    if translator is None and packaged is None:
        known = ", ".join(LANGUAGES)
        needs = f"captions in the language {language!r} need a translator"
        raise UserError(f"{needs}; the package has {known}")
    if translator is None:
        loaded = _packaged(packaged, device, precision, engine)
    else:
        loaded = load_translator(translator, device, precision, engine)
    check_aligns(loaded)
    loaded = avoiding(loaded, language, without)
    return partial(translate_captions, translator=loaded, language=language)


_packaged = cache(load_translator)  # For captions of several batches, or of dialects.
