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

_MODULES = {
    "Caption": "caption",
    "Captioner": "caption",
    "Failed": "outcomes",
    "SearchOptions": "decoding",
    "Translation": "translate",
    "TranslationSearch": "translate",
    "Translator": "translate",
    "load": "models",
    "load_translator": "models",
    "translate_captions": "translate.translated_captions",
}
"""The module of every name that is imported when it is first used."""

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


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"captioner.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'captioner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
