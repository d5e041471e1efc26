"""Image captioning that shows where it looked.

    import captioner
    model = captioner.load()
    caption = model.caption("photo.jpg")
    print(caption.text, caption.attention.shape)
    caption.overlay("maps.png")

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from captioner.errors import UserError

if TYPE_CHECKING:
    from captioner.caption import Caption, Captioner
    from captioner.decoding import SearchOptions
    from captioner.models import load, load_translator
    from captioner.outcomes import Failed
    from captioner.translate import Translation, TranslationSearch, Translator
    from captioner.translate.translated_captions import translate_captions

__version__ = "0.2.0"

__all__ = [
    "Caption",
    "Captioner",
    "Failed",
    "SearchOptions",
    "Translation",
    "TranslationSearch",
    "Translator",
    "UserError",
    "load",
    "load_translator",
    "translate_captions",
]

_MODULES = {
    "caption": ("Caption", "Captioner"),
    "decoding": ("SearchOptions",),
    "models": ("load", "load_translator"),
    "outcomes": ("Failed",),
    "translate": ("Translation", "TranslationSearch", "Translator"),
    "translate.translated_captions": ("translate_captions",),
}
"""The names that are imported when they are first used, by module."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"captioner.{module}"), name)
    raise AttributeError(f"module 'captioner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
