"""Write the pages that the package's declarations give: docs/configuration.md and docs/commands.md.

python scripts/write_reference_pages.py
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from captioner.cli.main import build_parser
from captioner.cli.program import run_program
from captioner.files import write_text
from captioner.runs.captioning_recipe import CaptioningRecipe, EncoderRecipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.schema import Config, first_line, markdown_table, section_of
from captioner.vision.encoders import FAMILIES

DOCS = Path(__file__).resolve().parents[1] / "docs"


def sections(kind: type[Config], prefix: str = "") -> Iterator[tuple[str, type[Config]]]:
    """A section and those nested in it, by their dotted names; the outermost has none."""
    yield prefix, kind
    for name, field in kind.model_fields.items():
        section = section_of(field.annotation)
        if section is not None:
            yield from sections(section, f"{prefix}.{name}" if prefix else name)
        if section is EncoderRecipe:
            for family in FAMILIES:
                yield f"{name} ({family.config.__name__.removesuffix('Config')})", family.config


def configuration() -> str:
    """Every field of a config, as Markdown."""
    lines = [
        "# Configuration",
        "",
        "Every field of a config, by section. Written by `scripts/write_reference_pages.py`.",
    ]
    for title, kind in (("Captioning", CaptioningRecipe), ("Translation", TranslationRecipe)):
        lines += ["", f"## {title}"]
        for name, section in sections(kind):
            lines += ["", f"### `{name}`" if name else "### Top level", ""]
            lines += [first_line(section), "", markdown_table(section)]
    return "\n".join(lines) + "\n"


def commands() -> str:
    """The help of every command, as Markdown."""
    os.environ["COLUMNS"] = "100"
    lines = [
        "# Commands",
        "",
        "What `--help` prints. Written by `scripts/write_reference_pages.py`.",
    ]
    for name, parser in parsers().items():
        lines += ["", f"## captioner {name}", "", "```text", parser.format_help().rstrip(), "```"]
    return "\n".join(lines) + "\n"


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by name."""
    actions = build_parser()._actions
    (found,) = (each for each in actions if isinstance(each, argparse._SubParsersAction))
    return dict(found.choices)


def main() -> int:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()

    def run() -> int:
        write_text(DOCS / "configuration.md", configuration())
        write_text(DOCS / "commands.md", commands())
        return 0

    return run_program(run)


if __name__ == "__main__":
    sys.exit(main())
