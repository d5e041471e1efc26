"""Which of matplotlib's fonts have the letters of a text."""

from __future__ import annotations

import functools
from collections.abc import Iterable

OWN = "DejaVu Sans"
"""The family that comes with matplotlib."""

_LAST_RESORT = "Last Resort"
"""How families begin that have a box for every letter, and so none of them."""


def families_for(text: str) -> tuple[list[str], str]:
    """Font families that together have the letters of a text, and the letters that none has.

    Families, in the order in which a letter is looked for: matplotlib's own, and those installed
    that have what it lacks. Letters: each once, in the order of Unicode.
    """
    from matplotlib.font_manager import findfont

    wanted = {letter for letter in text if not letter.isspace()}
    missing = wanted - _had(findfont(OWN), wanted)
    families = [OWN]
    for family, path in _installed() if missing else ():
        if had := _had(path, missing):
            families.append(family)
            missing -= had
        if not missing:
            break
    return families, "".join(sorted(missing))


@functools.lru_cache(maxsize=1)
def _installed() -> tuple[tuple[str, str], ...]:
    """Family and file of each upright font, those without serifs first.

    Those that were installed after matplotlib last looked are among them.
    """
    from matplotlib.font_manager import findSystemFonts, fontManager

    known = {font.fname for font in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            try:
                fontManager.addfont(path)
            except Exception:  # Whatever a damaged font brings about: it is no font to draw with.
                continue
    upright = {
        ("sans" not in font.name.casefold(), font.weight != 400, font.name, font.fname)
        for font in fontManager.ttflist
        if font.style == "normal" and not font.name.startswith(_LAST_RESORT)
    }
    return tuple((name, path) for *_, name, path in sorted(upright))


def _had(path: str, letters: Iterable[str]) -> set[str]:
    """Those of the letters that a font has, which must be one that can be drawn with."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
        font.set_size(10, 72)  # Fails for fonts of pictures, such as emoji in colour.
        return {letter for letter in letters if font.get_char_index(ord(letter))}
    except (OSError, RuntimeError):
        return set()
