"""Image captioning that shows where it looked.

    import captioner
    model = captioner.load()
    caption = model.caption("photo.jpg")
    print(caption.text, caption.attention.shape)
    caption.overlay("maps.png")

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from captioner.errors import UserError as UserError

if TYPE_CHECKING:
    from captioner.caption.caption import Caption as Caption
    from captioner.caption.captioner import Captioner as Captioner
    from captioner.decoding.options import SearchOptions as SearchOptions
    from captioner.decoding.options import TranslationSearch as TranslationSearch
    from captioner.loading import load as load
    from captioner.loading import load_translator as load_translator
    from captioner.outcomes import Failed as Failed
    from captioner.translate.translated_captions import translate_captions as translate_captions
    from captioner.translate.translation import Translation as Translation
    from captioner.translate.translator import Translator as Translator
    from captioner.vision.images import load_image as load_image

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reads it when it is imported.

__version__ = "0.4.0.dev0"

_MODULES = {
    "caption.caption": ("Caption",),
    "caption.captioner": ("Captioner",),
    "decoding.options": ("SearchOptions", "TranslationSearch"),
    "loading": ("load", "load_translator"),
    "outcomes": ("Failed",),
    "translate.translated_captions": ("translate_captions",),
    "translate.translation": ("Translation",),
    "translate.translator": ("Translator",),
    "vision.images": ("load_image",),
}
"""The names that are imported when they are first used, by module."""

__all__ = ["UserError", *(name for names in _MODULES.values() for name in names)]


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"captioner.{module}"), name)
    raise AttributeError(f"module 'captioner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
