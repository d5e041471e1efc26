"""The pages of all fields and options are as declared; commands in prose are accepted."""

import argparse
import re
import runpy
import shlex
import sys
from typing import Any

import pytest
from scripts_samples import ROOT

from captioner.schema import plain_type, section_of


@pytest.fixture
def script(import_scripts: None) -> Any:
    import write_reference_pages

    return write_reference_pages


@pytest.mark.parametrize("name", ["configuration", "api"])
def test_the_committed_page_is_what_the_declarations_give(script: Any, name: str) -> None:
    page = (script.DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert page == getattr(script, name)(), "run python scripts/write_reference_pages.py"


def test_the_page_of_commands_has_every_option_and_its_help(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word by word: versions of Python lay help out in different ways."""
    monkeypatch.setenv("COLUMNS", "100")
    page = (script.DOCS / "commands.md").read_text(encoding="utf-8")
    sections = page.split("\n## captioner ")[1:]
    assert [section.split("\n")[0] for section in sections] == list(script.parsers())
    for section, parser in zip(sections, script.parsers().values(), strict=True):
        words = [set(re.findall(r"[\w-]+", text)) for text in (parser.format_help(), section)]
        assert not words[0] - words[1], "run python scripts/write_reference_pages.py"


def test_every_field_has_a_description_and_every_number_limits(script: Any) -> None:
    for recipe in (script.CaptioningRecipe, script.TranslationRecipe):
        for name, section in script.sections(recipe):
            for field, info in section.model_fields.items():
                nested = section_of(info.annotation)
                assert info.description or (nested and nested.__doc__), f"{name}.{field}"
                if plain_type(info.annotation) in (int, float):
                    limits = script.limits_of(info)
                    assert limits.keys() & {"ge", "gt"}, f"{name}.{field}"
                    assert limits.keys() & {"le", "lt"}, f"{name}.{field}"


RESULTS = " ".join((ROOT / "docs/results/index.md").read_text(encoding="utf-8").split())
COMMANDS = re.findall(r"`(?:OMP_NUM_THREADS=\d )?(?:python )?(scripts/\S+\.py [^`]+)`", RESULTS)
assert len(COMMANDS) >= 4


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_in_the_results_is_whole(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def begins(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise SystemExit(0)  # The options were accepted: work would begin.

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", begins)
    program, *options = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [program, *options])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / program), run_name="__main__")
    assert ended.value.code == 0
