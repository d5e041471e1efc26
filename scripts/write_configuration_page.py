"""Write docs/configuration.md: every field of a config, from the declarations in the package.

python scripts/write_configuration_page.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from captioner.cli.program import run_program
from captioner.files import write_text
from captioner.runs.captioning_recipe import CaptioningRecipe, EncoderRecipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.schema import Config, first_line, markdown_table, section_of
from captioner.vision.encoders import FAMILIES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"


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


def render() -> str:
    """The whole page, as Markdown."""
    lines = [
        "# Configuration",
        "",
        "Every field of a config, by section. Written by `scripts/write_configuration_page.py`.",
    ]
    for title, kind in (("Captioning", CaptioningRecipe), ("Translation", TranslationRecipe)):
        lines += ["", f"## {title}"]
        for name, section in sections(kind):
            lines += ["", f"### `{name}`" if name else "### Top level", ""]
            lines += [first_line(section), "", markdown_table(section)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()

    def run() -> int:
        write_text(PAGE, render())
        return 0

    return run_program(run)


if __name__ == "__main__":
    sys.exit(main())
