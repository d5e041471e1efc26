"""Image captioning that shows where it looked.

    import captioner
    model = captioner.load()
    caption = model.caption(["photo.jpg"])[0]
    print(caption.text, caption.attention.shape)

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from captioner.errors import UserError

if TYPE_CHECKING:
    from captioner.caption import Caption, Captioner
    from captioner.decoding import SearchOptions
    from captioner.models import load, load_translator
    from captioner.translate import Translation, TranslationSearch, Translator

__version__ = "0.1.0"
__all__ = [
    "Caption",
    "Captioner",
    "SearchOptions",
    "Translation",
    "TranslationSearch",
    "Translator",
    "UserError",
    "load",
    "load_translator",
]


def __getattr__(name: str) -> Any:
    if name in ("load", "load_translator"):
        from captioner import models

        return getattr(models, name)
    if name in ("Caption", "Captioner"):
        from captioner import caption

        return getattr(caption, name)
    if name == "SearchOptions":
        from captioner import decoding

        return getattr(decoding, name)
    if name in ("Translation", "TranslationSearch", "Translator"):
        from captioner import translate

        return getattr(translate, name)
    raise AttributeError(f"module 'captioner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
