"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic.fields import FieldInfo

from captioner.decoding.options import SAMPLING, SearchOptions
from captioner.errors import UserError, did_you_mean, near_names
from captioner.files import check_writable, real_path
from captioner.schema import Config

Search = TypeVar("Search", bound=SearchOptions)
Section = TypeVar("Section", bound=Config)

Commands = Any  # argparse's private _SubParsersAction
Group = argparse._ArgumentGroup


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Prints descriptions as written, and options in lines of at most 98 characters."""

    def __init__(self, prog: str) -> None:
        width = min(100, shutil.get_terminal_size().columns) - 2
        super().__init__(prog, max_help_position=30, width=width)


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors show its own usage and what may have been meant.

    PATHs may stand between options.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, or end the program for arguments that are not known."""
        words = sys.argv[1:] if args is None else list(args)
        self._check_options(words)
        parsed, rest = super().parse_known_args(words, namespace)
        end = rest.index("--") if "--" in rest else len(rest)
        unknown = [word for word in rest[:end] if word.startswith("-") and word != "-"]
        if unknown and os.path.lexists(unknown[0]):
            self.error(f"{unknown[0]} is no option; the file of that name is ./{unknown[0]}")
        if rest and (unknown or not hasattr(parsed, "paths")):
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._near(*unknown[:1])}")
        if rest:  # argparse fills PATH ... once.
            parsed.paths += rest[:end] + rest[end + 1 :]
        return parsed, []

    def _check_options(self, words: Sequence[str]) -> None:
        """Refuse an unknown option before argparse misses what it was to give."""
        known = self._option_string_actions
        for word in words:
            if word == "--" or (self._subparsers and not word.startswith("-")):
                return  # Paths follow, or a command, which has other options.
            name = word.partition("=")[0]
            # argparse takes an abbreviated option, and words with a space as a value.
            is_option = name.startswith("--") and " " not in word
            if is_option and not any(each.startswith(name) for each in known):
                self.error(f"unrecognized option {name}{self._near(name)}")

    def _near(self, option: str = "") -> str:
        return did_you_mean(near_names(option, self._option_string_actions, cutoff=0.75))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            options = self._option_string_actions if self._subparsers else ()
            near = near_names(value, [*action.choices, *options])
            if self._subparsers and os.path.exists(value):
                near = [f"captioner caption {value}"]
            message = f"{value!r} is not one of {', '.join(action.choices)}{did_you_mean(near)}"
            raise argparse.ArgumentError(action, message)


def add_parser(
    commands: Commands, name: str, summary: str, description: str, usage: str
) -> CommandParser:
    """Add a command's parser. usage: its arguments."""
    parser: CommandParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        usage=f"captioner {name} {usage}",
        formatter_class=HelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    return parser


def add_model(group: Group, default: str = "default") -> None:
    """Add --model."""
    group.add_argument(
        "--model", default=default, help="a model folder or name (default: %(default)s)"
    )


def add_machine(
    parser: argparse.ArgumentParser, batch: str = "", batch_size: int = 0, precision: bool = False
) -> Group:
    """Add the group of --device and, if wanted, --precision and --batch-size.

    batch: what --batch-size counts, "" for no such option. batch_size: its default.
    """
    group = parser.add_argument_group("machine")
    add_device(group)
    if precision:
        group.add_argument(
            "--precision",
            choices=("auto", "float32", "bfloat16"),
            default="auto",
            metavar="PRECISION",
            help="float32, bfloat16 or auto (default: %(default)s)",
        )
    if batch:
        group.add_argument(
            "--batch-size",
            type=_batch_size,
            default=batch_size,
            metavar="N",
            help=f"{batch} (default: %(default)s)",
        )
    return group


def add_device(parser: argparse.ArgumentParser | Group) -> None:
    """Add --device."""
    parser.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda, cuda:N, mps or auto (default: %(default)s)",
    )


def _batch_size(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UserError(f"--batch-size {text} is not at least 1")
    return int(text)


def add_search(
    parser: argparse.ArgumentParser, kind: type[SearchOptions], explained_in: str = ""
) -> None:
    """Add an option, by default None, for every field of a search.

    explained_in: the command whose help lists the options; --n-best is left out.
    """
    group = parser.add_argument_group("search (defaults: the model's own)")
    if explained_in:
        group.description = f"--beam, --sample and more: see captioner {explained_in} --help"
    for name, field in kind.model_fields.items():
        if name == "n_best" and explained_in:
            continue
        flag = f"--{name.replace('_', '-')}"
        about = argparse.SUPPRESS if explained_in else field.description
        if field.annotation is bool:
            group.add_argument(flag, action="store_true", default=None, help=about)
        else:
            _add_field(group, flag, field, about)


def add_fields(group: Group, kind: type[Config], options: Mapping[str, str]) -> None:
    """Add an option, by default None, for fields of a section. options: by field."""
    for name, option in options.items():
        field = kind.model_fields[name]
        _add_field(group, option, field, f"{field.description} (default: {field.default})")


def _add_field(group: Group, option: str, field: FieldInfo, about: str | None) -> None:
    """Add the option of a number."""
    number, letter = (int, "N") if field.annotation is int else (float, "X")
    group.add_argument(option, type=number, metavar=letter, help=about)


def read_fields(
    arguments: argparse.Namespace, kind: type[Section], options: Mapping[str, str]
) -> Section:
    """The section that options of `add_fields` give."""
    given = {name: getattr(arguments, _attribute(option)) for name, option in options.items()}
    try:
        return kind(**{name: value for name, value in given.items() if value is not None})
    except UserError as error:
        name, _, reason = str(error).partition(" ")
        raise UserError(f"{options[name]} {reason}") from None


def _attribute(option: str) -> str:
    return option.lstrip("-").replace("-", "_").lower()


def search_options(arguments: argparse.Namespace, own: Search) -> Search:
    """The model's own search options, overridden by the command line."""
    given = {name: getattr(arguments, name, None) for name in type(own).model_fields}
    if not (given["sample"] or own.sample):
        refuse(arguments, SAMPLING, "without --sample")
    return own.override(**given)


def refuse(arguments: argparse.Namespace, options: Iterable[str], where: str) -> None:
    """Raise `UserError` for the first of these options that was given: `--top-k` or `top_k`."""
    for name in map(_attribute, options):
        if getattr(arguments, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} has no meaning {where}")


def add_overwrite(group: Group, what: str = "files that are there already") -> None:
    """Add --overwrite."""
    group.add_argument("--overwrite", action="store_true", help=f"replace {what}")


def check_outputs(arguments: argparse.Namespace, *options: str) -> None:
    """Raise `UserError` for an output that is there, without --overwrite, or cannot be written.

    options: that name files to write, such as `--json`.
    """
    given = [(option, getattr(arguments, _attribute(option))) for option in options]
    check_files([(option, path) for option, path in given if path is not None], arguments.overwrite)


def check_files(
    files: Sequence[tuple[str, str]], overwrite: bool, folders: Sequence[str] = ()
) -> None:
    """Raise `UserError` for an output that is there, unless `overwrite`, or cannot be written.

    files: paths with the options that name them. folders: the options that name folders. Empty
    files and folders, devices and pipes are written to.
    """
    taken: dict[str, str] = {}
    for option, path in files:
        if not path:
            raise UserError(f"{option} is empty; it should name a file")
        if (other := taken.setdefault(real_path(path), option)) != option:
            raise UserError(f"{other} and {option} are the same file, {path}; give two names")
        is_there = os.path.isfile(path) and os.path.getsize(path) > 0
        if option in folders:
            is_there = os.path.isdir(path) and bool(os.listdir(path))
        elif os.path.isdir(path):
            raise UserError(f"{option} {path} is a folder, not a file")
        if is_there and not overwrite:
            raise UserError(f"{option} {path} exists; --overwrite replaces it")
    for folder, option in {os.path.dirname(path): option for option, path in files}.items():
        check_writable(option, folder)
