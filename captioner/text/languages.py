"""Tags of languages (RFC 5646), such as "de" or "pt-BR"."""

from __future__ import annotations

import re

from captioner.errors import UserError

ENGLISH = "en"
"""The language of captions that are not translated."""


def language_tag(text: str, where: str) -> str:
    """A tag in its usual case (section 2.1.1): "fr" for FR, "pt-BR" for pt-br.

    where: names it in messages, such as "--language". Raises `UserError` if it is none.
    """
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", text):
        raise UserError(f"{where} {text!r} is not a language tag such as de or pt-BR")
    language, *rest = text.lower().split("-")
    cases = {2: str.upper, 4: str.title}  # Regions and scripts.
    return "-".join([language, *(cases.get(len(part), str)(part) for part in rest)])
