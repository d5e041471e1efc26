"""The packaged models, and loading by name or path. Not here: what a folder holds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from captioner.errors import INSTALL, GraphError, UserError
from captioner.model_folders import WEIGHTS, complete_folder, has_graphs, kind_of, model_folder

if TYPE_CHECKING:
    import torch

    from captioner.caption.photos import PhotoCaptioner, Translate
    from captioner.translate.sentences import SentenceTranslator

Model = TypeVar("Model")
EngineName = Literal["auto", "graphs", "torch"]

DEFAULT = "default"
DEFAULT_TRANSLATOR = "english_german"
LANGUAGES = {"de": DEFAULT_TRANSLATOR, "fr": "english_french"}
"""The packaged translator into each language."""


def load(
    name_or_path: str | os.PathLike[str] = DEFAULT,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    engine: EngineName = "auto",
) -> PhotoCaptioner:
    """Load a captioner: the packaged one, or by name, folder or `hf://user/name`.

    device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for the best available.
    precision: of the encoder: `float32`, or `bfloat16`, which takes less time on a CPU with
        instructions for it and gives another caption of about the same score for 3 photos in 100.
    engine: computes the networks: `graphs`, the ONNX graphs of the folder, which need no torch, or
        `torch`. `auto` takes the graphs on a CPU in float32, where the folder has them.

    To train or save a model, use `load_model` of `captioner.caption.folder` instead.
    """
    folder = model_folder(name_or_path)
    model: PhotoCaptioner | None = None
    if _takes_graphs(folder, device, precision, engine):
        from captioner.onnx.captioner import OnnxCaptioner

        model = _unless_torch_can(OnnxCaptioner, folder, engine)
    if model is None:
        from captioner.caption.folder import load_model
        from captioner.devices import choose_device, choose_precision

        device = choose_device(device)
        model = load_model(folder, device).for_inference(choose_precision(precision))
    model.load_translation = partial(
        _packaged_translation, device=device, precision=precision, engine=engine
    )
    return model


def load_translator(
    name_or_path: str | os.PathLike[str] = DEFAULT_TRANSLATOR,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    engine: EngineName = "auto",
) -> SentenceTranslator:
    """Load a translator: the packaged one by default, another as `load` does."""
    folder = model_folder(name_or_path)
    if _takes_graphs(folder, device, precision, engine):
        from captioner.onnx.translator import OnnxTranslator

        if graphs := _unless_torch_can(OnnxTranslator, folder, engine):
            return graphs
    from captioner.devices import choose_device, choose_precision
    from captioner.translate.translator import load_translator as load_from

    translator = load_from(folder, choose_device(device))
    translator.precision = choose_precision(precision)
    return translator


def _unless_torch_can(
    load_graphs: Callable[[Path], Model], folder: Path, engine: EngineName
) -> Model | None:
    """A model computed by its graphs; None if they cannot be used and torch is to compute it."""
    try:
        return load_graphs(folder)
    except GraphError:
        has_weights = os.path.isfile(complete_folder(folder) / WEIGHTS)
        if engine == "graphs" or not has_weights or find_spec("torch") is None:
            raise
    return None


def _takes_graphs(folder: Path, device: object, precision: str, engine: EngineName) -> bool:
    """Whether the networks of a model are computed by graphs."""
    if engine not in get_args(EngineName):
        raise UserError(f"engine {engine!r} is not one of {', '.join(get_args(EngineName))}")
    is_plain = str(device) in ("auto", "cpu") and precision == "float32"
    if engine == "graphs" and not is_plain:
        raise UserError(f"graphs run on a CPU in float32, not on {device} in {precision}")
    if engine != "auto":
        return engine == "graphs"
    if find_spec("torch") is None:
        if kind_of(folder) is None:
            raise UserError(f"folder {folder} holds no model")
        if not is_plain or not has_graphs(folder):
            where = f"on device {device} in {precision}"
            raise UserError(f"the model {folder} {where} needs torch: {INSTALL}")
        return True
    if not is_plain or not has_graphs(folder):
        return False
    if str(device) == "auto" and may_have_gpu("auto"):
        from captioner.devices import choose_device

        return choose_device("auto").type == "cpu"
    return True


def may_have_gpu(device: object) -> bool:
    """Whether a device may be a GPU; asked of `auto` without importing torch."""
    if find_spec("torch") is None or str(device) == "cpu":
        return False
    drivers = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, Windows', AMD's.
    return str(device) != "auto" or sys.platform != "linux" or any(map(os.path.exists, drivers))


def load_translation(
    language: str,
    translator: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    engine: EngineName = "auto",
) -> Translate:
    """Load a translator and return the function that translates captions with it.

    language: a tag, such as "de" or "de-CH". translator: by default the packaged one into it.
    """
    from captioner.translate.translated_captions import check_aligns, translate_captions

    name = translator or LANGUAGES.get(language.partition("-")[0])
    if name is None:
        known = ", ".join(LANGUAGES)
        needs = f"captions in the language {language!r} need a translator"
        raise UserError(f"{needs}; the package has {known}")
    loaded = load_translator(name, device, precision, engine)
    check_aligns(loaded)
    return partial(translate_captions, translator=loaded, language=language)


@cache
def _packaged_translation(language: str, **options: Any) -> Translate:
    """`load_translation` of a packaged translator, which is loaded once."""
    return load_translation(language, **options)
