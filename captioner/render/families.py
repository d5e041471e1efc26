"""Finds fonts for matplotlib that have the letters of a text."""

from __future__ import annotations

import functools
from collections.abc import Iterable

BUNDLED = "DejaVu Sans"
"""The family bundled with matplotlib."""

_LAST_RESORT = "Last Resort"
"""Prefix of fallback families that draw a box for every letter."""


def families_for(text: str) -> tuple[list[str], str]:
    """Return font families for the letters of a text, and the letters that no font has.

    Families are in order of preference: matplotlib's own, then installed ones that have missing
    letters. Letters are distinct and sorted.
    """
    from matplotlib.font_manager import findfont

    wanted = {letter for letter in text if not letter.isspace()}
    missing = wanted - _letters_in(findfont(BUNDLED), wanted)
    families = [BUNDLED]
    for family, path in _installed() if missing else ():
        if found := _letters_in(path, missing):
            families.append(family)
            missing -= found
        if not missing:
            break
    return families, "".join(sorted(missing))


@functools.lru_cache(maxsize=1)
def _installed() -> tuple[tuple[str, str], ...]:
    """Family and file of each upright font, sans-serif first.

    Includes fonts installed after matplotlib built its font cache.
    """
    from matplotlib.font_manager import findSystemFonts, fontManager

    known = {font.fname for font in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            try:
                fontManager.addfont(path)
            except Exception:  # Damaged fonts raise many types of errors.
                continue
    upright = {
        ("sans" not in font.name.casefold(), font.weight != 400, font.name, font.fname)
        for font in fontManager.ttflist
        if font.style == "normal" and not font.name.startswith(_LAST_RESORT)
    }
    return tuple((name, path) for *_, name, path in sorted(upright))


def _letters_in(path: str, letters: Iterable[str]) -> set[str]:
    """The letters that a font has; none if matplotlib cannot draw with it."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
        font.set_size(10, 72)  # Fails for bitmap fonts, such as colour emoji.
        return {letter for letter in letters if font.get_char_index(ord(letter))}
    except (OSError, RuntimeError):
        return set()
