"""Options that several commands share."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any, TypeVar

from captioner.decoding.options import SAMPLING, SearchOptions
from captioner.errors import UserError

Search = TypeVar("Search", bound=SearchOptions)

SEARCH = tuple(SearchOptions.model_fields)
"""Search options of every model; None if not given."""

Commands = Any  # argparse's private _SubParsersAction


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Prints descriptions as written, and options in lines of at most 98 characters."""

    def __init__(self, prog: str) -> None:
        width = min(100, shutil.get_terminal_size().columns) - 2
        super().__init__(prog, max_help_position=30, width=width)


class CommandParser(argparse.ArgumentParser):
    """A command's parser: its errors show its own usage, and PATHs may stand between options."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, or end the program for arguments that are not known."""
        parsed, rest = super().parse_known_args(args, namespace)
        end = rest.index("--") if "--" in rest else len(rest)
        unknown = any(word.startswith("-") and word != "-" for word in rest[:end])
        if rest and (unknown or not hasattr(parsed, "paths")):
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        if rest:  # argparse fills PATH ... once.
            parsed.paths += rest[:end] + rest[end + 1 :]
        return parsed, []


def add_parser(
    commands: Commands, name: str, summary: str, description: str
) -> argparse.ArgumentParser:
    """Add a command's parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=HelpFormatter,
    )
    return parser


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add --device."""
    parser.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda, cuda:N, mps or auto (default: %(default)s)",
    )


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Add --precision, of a captioner's encoder."""
    parser.add_argument(
        "--precision",
        default="auto",
        help="float32, bfloat16 or auto (default: %(default)s)",
    )


def add_search(
    parser: argparse.ArgumentParser, kind: type[SearchOptions], explained_in: str = ""
) -> None:
    """Add an option, by default None, for every field of a search.

    explained_in: the command whose help explains the options; this help lists them only, and
        --n-best is left out.
    """
    see = f"; see captioner {explained_in} --help" if explained_in else ""
    group = parser.add_argument_group(f"search (defaults: the model's own{see})")
    listed = []
    for name, field in kind.model_fields.items():
        if name == "n_best" and explained_in:
            continue
        flag = f"--{name.replace('_', '-')}"
        about = argparse.SUPPRESS if explained_in else field.description
        if field.annotation is bool:
            group.add_argument(flag, action="store_true", default=None, help=about)
            listed.append(flag)
        else:
            number = int if field.annotation is int else float
            letter = "N" if number is int else "X"
            group.add_argument(flag, type=number, metavar=letter, help=about)
            listed.append(f"{flag}\0{letter}")
    if explained_in:
        lines = textwrap.fill(" ".join(listed), 76, break_on_hyphens=False)
        group.description = lines.replace("\0", " ")


def search_options(arguments: argparse.Namespace, own: Search) -> Search:
    """The model's own search options, overridden by the command line.

    Raises `UserError` as `SearchOptions.override` does.
    """
    given = {name: getattr(arguments, name, None) for name in type(own).model_fields}
    if not (given["sample"] or own.sample):
        refuse(arguments, SAMPLING, "without --sample")
    return own.override(**given)


def refuse(arguments: argparse.Namespace, names: Sequence[str], where: str) -> None:
    """Raise `UserError` for the first of these options that was given."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} has no meaning {where}")
