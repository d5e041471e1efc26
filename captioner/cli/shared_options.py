"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from captioner.decoding.options import SearchOptions
from captioner.errors import UserError, did_you_mean, near_names
from captioner.files import check_writable, real_path, try_all, write_json

Search = TypeVar("Search", bound=SearchOptions)

Commands = Any  # argparse's private _SubParsersAction
Group = argparse._ArgumentGroup
Run = Callable[[argparse.Namespace], int]

FILES = ("coco", "karpathy", "flickr8k", "table")
FORMATS = (*FILES, "shapes")
"""Formats of data sets: in files, and all."""


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
        parsed, rest = super().parse_known_args(args, namespace)
        end = rest.index("--") if "--" in rest else len(rest)
        unknown = [word for word in rest[:end] if word.startswith("-") and word != "-"]
        if rest and (unknown or not hasattr(parsed, "paths")):
            near = [near_names(word, self._option_string_actions, 1, 0.75) for word in unknown]
            meant = did_you_mean([name for names in near for name in names])
            self.error(f"unrecognized arguments: {' '.join(rest)}{meant}")
        if rest:  # argparse fills PATH ... once.
            parsed.paths += rest[:end] + rest[end + 1 :]
        return parsed, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = near_names(value, action.choices)
            if self._subparsers and os.path.exists(value):
                near = [f"captioner caption {value}"]
            message = f"{value!r} is not one of {', '.join(action.choices)}{did_you_mean(near)}"
            raise argparse.ArgumentError(action, message)


def add_parser(
    commands: Commands, name: str, run: Run, summary: str, usage: str, description: str
) -> CommandParser:
    """Add a command's parser. run: its function. usage: its arguments."""
    parser: CommandParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        usage=f"captioner {name} {usage}",
        formatter_class=HelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)
    return parser


def add_model(group: Group, default: str = "default") -> None:
    """Add --model."""
    about = "a model folder, a name or hf://user/name (default: %(default)s)"
    group.add_argument("--model", default=default, help=about)


def add_data_set(group: Group, formats: Sequence[str], problems: str) -> None:
    """Add the options of a data set but --split. problems: what --on-problem skip skips."""
    group.add_argument("--format", choices=formats, metavar="FORMAT", help=", ".join(formats))
    about = "the captions: a table, shards, a folder of photos with texts, or a file in --format"
    group.add_argument("--annotations", metavar="FILE", help=about)
    about = "the photos (default: where the captions are)"
    group.add_argument("--images", metavar="FOLDER", help=about)
    add_on_problem(group, problems)


def add_on_problem(group: Group, problems: str) -> None:
    """Add --on-problem. problems: what its `skip` skips."""
    group.add_argument(
        "--on-problem",
        choices=("refuse", "skip"),
        default="refuse",
        metavar="ACTION",
        help=f"refuse (default) or skip {problems}",
    )


def check_data_set(arguments: argparse.Namespace) -> None:
    """Raise `UserError` unless the options name a data set."""
    if arguments.format != "shapes" and not arguments.annotations:
        raise UserError("give the data set: --annotations")


def add_machine(
    parser: argparse.ArgumentParser, batch: str = "", batch_size: int = 0, precision: bool = False
) -> Group:
    """Add the group of --device and, if wanted, --precision and --batch-size.

    batch: what --batch-size counts, "" for no such option. batch_size: its default.
    """
    group = parser.add_argument_group("machine")
    about = "cpu, cuda, cuda:N, mps or auto (default: %(default)s)"
    group.add_argument("--device", default="auto", help=about)
    if precision:
        group.add_argument(
            "--precision",
            choices=("float32", "bfloat16"),
            default="float32",
            metavar="PRECISION",
            help="float32, the same on every machine, or bfloat16 (default: %(default)s)",
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
        form: dict[str, Any] = {"type": float, "metavar": "X"}
        if field.annotation is int:
            form = {"type": int, "metavar": "N"}
        elif field.annotation is bool:
            form = {"action": "store_true", "default": None}
        about = argparse.SUPPRESS if explained_in else field.description
        group.add_argument(f"--{name.replace('_', '-')}", help=about, **form)


def search_options(arguments: argparse.Namespace, own: Search) -> Search:
    """The model's own search options, overridden by the command line."""
    return own.override(**{name: getattr(arguments, name, None) for name in type(own).model_fields})


def add_outputs(group: Group, json: str = "write the scores", csv: str = "") -> None:
    """Add --json, --csv unless its help is empty, and --overwrite."""
    group.add_argument("--json", metavar="FILE", help=json)
    if csv:
        group.add_argument("--csv", metavar="FILE", help=csv)
    add_overwrite(group)


def add_overwrite(group: Group, what: str = "files that are there already") -> None:
    """Add --overwrite."""
    group.add_argument("--overwrite", action="store_true", help=f"replace {what}")


def check_outputs(arguments: argparse.Namespace, *options: str) -> None:
    """Raise `UserError` for an output that is there, without --overwrite, or cannot be written.

    options: that name files to write, such as `--json`.
    """
    given = [(option, getattr(arguments, option[2:].replace("-", "_"))) for option in options]
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
        if other := taken.get(real_path(path)):
            raise UserError(f"{other} and {option} are the same file, {path}; give two names")
        taken[real_path(path)] = option
        is_there = os.path.isfile(path) and os.path.getsize(path) > 0
        if option in folders:
            is_there = os.path.isdir(path) and bool(os.listdir(path))
        elif os.path.isdir(path):
            raise UserError(f"{option} {path} is a folder, not a file")
        if is_there and not overwrite:
            raise UserError(f"{option} {path} exists; --overwrite replaces it")
    for folder, option in {os.path.dirname(path): option for option, path in files}.items():
        check_writable(option, folder)


def write_scores(scores: Any, arguments: argparse.Namespace) -> None:
    """Print the table of scores, and write --json and --csv; both are tried if one fails."""
    print(scores.table(), flush=True)
    writers = []
    if arguments.json:
        writers.append(partial(write_json, arguments.json, scores.to_dict()))
    if getattr(arguments, "csv", None):
        writers.append(partial(scores.write_csv, arguments.csv))
    try_all(writers)
