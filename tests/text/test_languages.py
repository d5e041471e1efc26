"""Tags of languages."""

from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.text.languages import language_tag


@pytest.mark.parametrize("tag", ["de", "und", "pt-BR", "zh-Hant-TW", "sl-rozaj-1994"])
def test_a_tag_has_its_usual_case(tag: str) -> None:
    for text in (tag, tag.lower(), tag.upper()):
        assert language_tag(text, "--language") == tag


@pytest.mark.parametrize("text", ["", "d", "french", "de_DE", "de-", "pt-BR "])
def test_what_is_no_tag_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"--language .* is not a language tag such as de or pt-BR"):
        language_tag(text, "--language")
