"""The page of all fields is the one that the declarations give."""

from __future__ import annotations

from typing import Any

import pytest
from scripts_samples import ROOT

from captioner.schema import Range, plain_type, section_of


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import write_configuration_page

    return write_configuration_page


def test_the_committed_page_is_what_the_declarations_give(script: Any) -> None:
    assert script.PAGE.read_text(encoding="utf-8") == script.render(), (
        "run python scripts/write_configuration_page.py"
    )


def test_every_field_has_a_description(script: Any) -> None:
    for recipe in (script.CaptioningRecipe, script.TranslationRecipe):
        for name, section in script.sections(recipe):
            for field, info in section.model_fields.items():
                nested = section_of(info.annotation)
                assert info.description or (nested and nested.__doc__), f"{name}.{field}"


def test_every_number_has_limits(script: Any) -> None:
    for recipe in (script.CaptioningRecipe, script.TranslationRecipe):
        for name, section in script.sections(recipe):
            for field, info in section.model_fields.items():
                if plain_type(info.annotation) in (int, float):
                    limits = Range.of(info)
                    assert limits.least is not None or limits.above is not None, f"{name}.{field}"
                    assert limits.most is not None or limits.below is not None, f"{name}.{field}"
