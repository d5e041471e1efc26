"""Write the pages that the package's declarations give: configuration, commands and api in docs/.

python scripts/write_reference_pages.py
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from pydantic.fields import FieldInfo

from captioner.cli.main import build_parser
from captioner.cli.program import run_program
from captioner.files import write_text
from captioner.runs.captioning_recipe import CaptioningRecipe, EncoderRecipe
from captioner.runs.translation_task import TranslationRecipe
from captioner.schema import Config, Kinds, choices, plain_type, section_of
from captioner.vision.encoder_config import EncoderConfig

DOCS = Path(__file__).resolve().parents[1] / "docs"


def sections(kind: type[Config], prefix: str = "") -> Iterator[tuple[str, type[Config]]]:
    """A section and those nested in it, by their dotted names; the outermost has none."""
    yield prefix, kind
    for name, field in kind.model_fields.items():
        section = section_of(field.annotation)
        if section is not None and issubclass(section, Kinds):
            for kind_name, config in section.kinds.items():
                yield from sections(config, f"{name} ({kind_name})")
        elif section is not None:
            yield from sections(section, f"{prefix}.{name}" if prefix else name)
        if section is EncoderRecipe:
            for config in dict.fromkeys(EncoderConfig.kinds.values()):
                yield f"{name} ({config.__name__.removesuffix('Config')})", config


def configuration() -> str:
    """Every field of a config, as Markdown."""
    about = "Every field of a config, by section. Written by `scripts/write_reference_pages.py`."
    lines = ["# Configuration", "", about]
    for title, kind in (("Captioning", CaptioningRecipe), ("Translation", TranslationRecipe)):
        lines += ["", f"## {title}"]
        for name, section in sections(kind):
            lines += ["", f"### `{name}`" if name else "### Top level", ""]
            lines += [first_line(section), "", markdown_table(section)]
    return "\n".join(lines) + "\n"


LIMITS = {"ge": "at least", "le": "at most", "gt": "above", "lt": "below"}


def limits_of(field: FieldInfo) -> dict[str, float]:
    """The limits that a number's field declares, by the names of `LIMITS`."""
    marks = list(field.metadata)
    for part in typing.get_args(field.annotation):  # Of a list, or of an optional number.
        for mark in getattr(part, "__metadata__", ()):
            marks += mark.metadata if isinstance(mark, FieldInfo) else [mark]
    return {
        name: getattr(mark, name)
        for mark in marks
        for name in LIMITS
        if getattr(mark, name, None) is not None
    }


def range_text(field: FieldInfo) -> str:
    """The limits of a number's field, "1 to 99"; empty if there are none."""
    limits = {
        name: f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"
        for name, limit in limits_of(field).items()
    }
    if {"ge", "le"} <= limits.keys():
        return f"{limits['ge']} to {limits['le']}"
    return ", ".join(sorted(f"{LIMITS[name]} {limit}" for name, limit in limits.items()))


def first_line(kind: type[Config]) -> str:
    """The first line of a section's docstring; empty if it has none."""
    return (kind.__doc__ or "").strip().partition("\n")[0]


def markdown_table(kind: type[Config]) -> str:
    """The fields of a section as a Markdown table: type, default, range and description."""
    lines = ["| field | type | default | range | description |", "|---|---|---|---|---|"]
    for name, field in kind.model_fields.items():
        section = section_of(field.annotation)
        about = field.description or ""
        if section is not None:
            about = about or first_line(section)
            kind_name, default, limits = "section", "", ""
        else:
            kind_name, default = type_name(field.annotation), default_text(field)
            limits = ", ".join(map(str, choices(field.annotation))) or range_text(field)
        cells = (f"`{name}`", kind_name, default, limits, re.sub(r"([|*])", r"\\\1", about))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TYPE_NAMES = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
}


def type_name(annotation: Any) -> str:
    """A field's type in words."""
    kind = plain_type(annotation)
    if choices(kind):
        return "choice"
    if typing.get_origin(kind) in (list, tuple):
        items = [each for each in typing.get_args(kind) if each is not Ellipsis]
        return f"list of {len(items)}" if len(items) > 1 else f"list of {type_name(items[0])}"
    if typing.get_origin(kind) is dict:
        return f"names with {type_name(typing.get_args(kind)[1])}"
    return TYPE_NAMES.get(kind, "section")


def default_text(field: FieldInfo) -> str:
    """A field's default as Markdown; "" for nothing."""
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return f"`{list(default)}`"
    return "" if default in (None, {}, []) else f"`{default}`"


def commands() -> str:
    """The help of every command, as Markdown."""
    os.environ["COLUMNS"] = "100"
    about = "What `--help` prints. Written by `scripts/write_reference_pages.py`."
    lines = ["# Commands", "", about]
    for name, parser in parsers().items():
        lines += ["", f"## captioner {name}", "", "```text", parser.format_help().rstrip(), "```"]
    return "\n".join(lines) + "\n"


API = {
    "Load a model": ("load", "load_translator"),
    "Caption": ("Captioner", "Caption", "SearchOptions", "Failed", "load_image"),
    "Compute captions another way": (
        "backends.protocol.CaptionBackend",
        "backends.protocol.Sentence",
    ),
    "Translate": ("translate_captions", "Translator", "Translation", "TranslationSearch"),
    "Errors": ("UserError",),
}
"""What docs/api.md has, by section."""


def api() -> str:
    """The Python reference: signatures and docstrings as they stand, as Markdown."""
    about = "Everything here is imported from `captioner`, but for the backends. Shapes: T output "
    about += "steps, S source steps. Examples are under [captioning](captioning.md#in-python) and "
    about += (
        "[translation](translation.md#in-python). Written by `scripts/write_reference_pages.py`."
    )
    lines = ["# Python reference", "", about]
    for title, names in API.items():
        lines += ["", f"## {title}"]
        for name in names:
            thing = resolve_name(f"captioner.{name}")
            is_config = isinstance(thing, type) and issubclass(thing, Config)
            shown = f"{first_line(thing)}\n\n{markdown_table(thing)}" if is_config else stub(thing)
            lines += ["", f"### `captioner.{name}`", "", shown]
    return "\n".join(lines) + "\n"


def stub(thing: Any) -> str:
    """The head and docstring of a function, or of a class and its public methods."""
    source = inspect.getsource(thing).splitlines()
    (node,) = ast.parse("\n".join(source)).body
    kinds = (ast.FunctionDef, ast.ClassDef)
    assert isinstance(node, kinds)
    members = [part for part in node.body if isinstance(part, kinds) and part.name[0] != "_"]
    lines = ["```python"]
    for part in (node, *(member for member in members if isinstance(node, ast.ClassDef))):
        if ast.get_docstring(part):
            first = min(each.lineno for each in (part, *part.decorator_list))
            lines += [*source[first - 1 : part.body[0].end_lineno], ""]
    return "\n".join([*lines[:-1], "```"])


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by name."""
    actions = build_parser()._actions
    (found,) = (each for each in actions if isinstance(each, argparse._SubParsersAction))
    return dict(found.choices)


def main() -> None:
    """Write the pages."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    write_text(DOCS / "configuration.md", configuration())
    write_text(DOCS / "commands.md", commands())
    write_text(DOCS / "api.md", api())


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
