"""Loads captioners and translators by name, path or address, and chooses what computes them."""

from __future__ import annotations

import os
import sys
from functools import cache, partial
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, get_args

from captioner.errors import INSTALL, GraphError, UserError, refuse_errors
from captioner.foreign_models import TRANSFORMERS
from captioner.model_folders import ModelFolder, model_folder, other_backend

if TYPE_CHECKING:
    import torch

    from captioner.caption.captioner import Captioner, Translate
    from captioner.translate.translator import Translator

EngineName = Literal["auto", "graphs", "torch"]

ENGINES = {
    "captioner": {
        "graphs": "captioner.backends.graph_captions:open_captions",
        "torch": "captioner.backends.torch_captions:open_captions",
        TRANSFORMERS: "captioner.backends.transformers_models:open_captions",
    },
    "translator": {
        "graphs": "captioner.backends.graph_translations:open_translations",
        "torch": "captioner.backends.torch_translations:open_translations",
    },
}
"""By kind of model: what opens a `ModelFolder`; but for graphs on a device, in a precision."""

DEFAULT = "default"
DEFAULT_TRANSLATOR = "english_german"
LANGUAGES = {"de": DEFAULT_TRANSLATOR, "fr": "english_french"}
"""The packaged translator into each language."""


def load(
    name_or_path: str | os.PathLike[str] = DEFAULT,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    engine: EngineName = "auto",
    calibration: str | os.PathLike[str] | None = None,
) -> Captioner:
    """Load a captioner: the packaged one, or by name, folder or `hf://user/name`.

    device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for the best available.
    precision: of the encoder: `float32`, or `bfloat16`, which takes less time on a CPU with
        instructions for it and gives another caption of about the same score for 10 photos in 100.
    engine: computes the networks: `graphs`, the ONNX graphs of the folder, which need no torch, or
        `torch`. `auto` takes the graphs on a CPU in float32, where the folder has them. A folder
        of a backend of another package has one engine, its own.
    calibration: a file of `captioner calibrate --out`, whose confidence replaces the model's.

    To train or save a model, use `load_model` of `captioner.caption.folder` instead.
    """
    from captioner.caption.captioner import Captioner
    from captioner.caption.config import captioner_config, read_calibration

    folder = ModelFolder(model_folder(name_or_path))
    backend = open_backend(folder, "captioner", device, precision, engine)
    config = captioner_config(folder)
    confidence = config.confidence
    if calibration is not None:
        confidence = read_calibration(calibration, folder)
    return Captioner(
        backend,
        config.search,
        confidence,
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
    from captioner.translate.config import TranslatorConfig
    from captioner.translate.translator import Translator

    folder = ModelFolder(model_folder(name_or_path))
    backend = open_backend(folder, "translator", device, precision, engine)
    config = folder.read("translator", TranslatorConfig)
    return Translator(
        backend,
        config.maximum_source_length,
        config.search,
        folder.card,
        config.capitals,
        config.unsure_below,
    )


def load_translation(
    language: str,
    translator: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Translate:
    """Load a translator and return the function that translates captions with it.

    language: a tag, such as "de" or "de-CH". translator: by default the packaged one into it.
    options: of `load_translator`.
    """
    from captioner.translate.translated_captions import translate_captions

    packaged = LANGUAGES.get(language.partition("-")[0])
    if translator is None and packaged is None:
        known = ", ".join(LANGUAGES)
        needs = f"captions in the language {language!r} need a translator"
        raise UserError(f"{needs}; the package has {known}")
    if translator is None:
        loaded = _packaged(packaged, **options)
    else:
        loaded = load_translator(translator, **options)
    return partial(translate_captions, translator=loaded, language=language)


_packaged = cache(load_translator)  # For captions of several batches, or of dialects.


def open_backend(
    folder: ModelFolder, kind: str, device: object, precision: str, engine: EngineName
) -> Any:
    """The backend of a model folder: a `CaptionBackend`, or a `TranslationBackend`.

    kind: the expected one of `ENGINES`. Where graphs cannot be used, torch computes if it can.
    """
    if engine not in get_args(EngineName):
        raise UserError(f"engine {engine!r} is not one of {', '.join(get_args(EngineName))}")
    if kind == "captioner" and (name := folder.backend):
        if engine != "auto" and (engine, name) != ("torch", TRANSFORMERS):
            raise UserError(f"{folder.path} has one engine, {name!r}, and no {engine!r}")
        with refuse_errors(f"{folder.path}: its backend {name!r} cannot be opened"):
            if name == TRANSFORMERS:
                opened = resolve_name(ENGINES["captioner"][name])
            else:
                opened = other_backend(name, str(folder.path)).load()  # Code that is not ours.
            return opened(folder, str(device), precision)
    folder.check_kind(kind)
    if _takes_graphs(folder, str(device), precision, engine):
        try:
            return resolve_name(ENGINES[kind]["graphs"])(folder)
        except GraphError:
            if engine == "graphs" or not folder.has_weights or find_spec("torch") is None:
                raise
    return resolve_name(ENGINES[kind]["torch"])(folder, str(device), precision)


def _takes_graphs(folder: ModelFolder, device: str, precision: str, engine: EngineName) -> bool:
    """Whether the networks of a model are computed by graphs."""
    is_plain = device in ("auto", "cpu") and precision == "float32"
    if engine == "graphs" and not is_plain:
        raise UserError(f"graphs run on a CPU in float32, not on {device} in {precision}")
    if engine != "auto":
        return engine == "graphs"
    if is_plain and folder.has_graphs:
        if device == "cpu" or not may_have_gpu("auto"):
            return True
        from captioner.devices import choose_device

        return choose_device("auto").type == "cpu"
    if find_spec("torch") is None:
        where = f"on device {device} in {precision}"
        raise UserError(f"the model {folder.path} {where} needs torch: {INSTALL}")
    return False


def may_have_gpu(device: object) -> bool:
    """Whether a device may be a GPU; asked of `auto` without importing torch."""
    if find_spec("torch") is None or str(device) == "cpu":
        return False
    drivers = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, Windows', AMD's.
    return str(device) != "auto" or sys.platform != "linux" or any(map(os.path.exists, drivers))
