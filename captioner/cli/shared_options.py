"""Options that several commands share."""

import argparse
import inspect
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn, TypeAlias, TypeVar

from pydantic.fields import FieldInfo

from captioner.cli.program import report
from captioner.data.example import Problems
from captioner.decoding.options import AnySearch
from captioner.errors import UserError, did_you_mean, near_names, on_a_line
from captioner.evaluation import Scores
from captioner.files import check_files, write_json, write_text
from captioner.loading import may_have_gpu
from captioner.schema import choices
from captioner.tables import csv_text

Search = TypeVar("Search", bound=AnySearch)

Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"
Run = Callable[[argparse.Namespace], int | None]
Add = Callable[..., None]
"""`add_option` to a group."""

MODEL_HELP = "a model folder, a name or hf://user/name"
CALIBRATION_HELP = "the model's confidence, of captioner calibrate --out"
TITLE_HELP = "heading of the page"
OVERWRITE = "replace files that are there already"
ON_PROBLEM: dict[str, object] = {"choices": ("refuse", "skip"), "default": "refuse"}
FILE_FORMATS = ("coco", "karpathy", "flickr8k", "table")
DATA_FORMATS = (*FILE_FORMATS, "shapes")
"""Formats of data sets: in files, and all."""


def help_formatter(prog: str) -> argparse.HelpFormatter:
    """Prints descriptions as written, and options in lines of at most 98 characters."""
    width = min(100, shutil.get_terminal_size().columns) - 2
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=width)


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors say what may have been meant; PATHs may stand between options."""

    def error(self, message: str) -> NoReturn:
        """End the program with a message, in which what was typed is escaped."""
        super().error(on_a_line(message))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, or end the program for arguments that are not known."""
        self.color = False  # Python 3.14 would print what steers a terminal.
        parsed, rest = super().parse_known_args(args, namespace)
        end = rest.index("--") if "--" in rest else len(rest)
        unknown = [word for word in rest[:end] if word.startswith("-") and word != "-"]
        if rest and (unknown or not hasattr(parsed, "paths")):
            options = self._option_string_actions
            meant = [name for word in unknown for name in near_names(word, options, 1, 0.75)]
            self.error(f"unrecognized arguments: {' '.join(rest)}{did_you_mean(meant)}")
        if rest:  # argparse fills PATH ... once.
            parsed.paths += rest[:end] + rest[end + 1 :]
        return parsed, []

    def _check_value(self, action: argparse.Action, value: object) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = did_you_mean(near_names(value, map(str, action.choices or ())))
            raise argparse.ArgumentError(action, f"{error.message}{near}") from None


def add_parser(commands: Commands, run: Run, usage: str, summary: str) -> tuple[CommandParser, Add]:
    """Add a command's parser with a group of input.

    run: its function, whose docstring is its description. usage: after its name.
    """
    parser = commands.add_parser(
        usage.partition(" ")[0],
        help=summary,
        description=inspect.getdoc(run),
        usage=f"captioner {usage}",
        formatter_class=help_formatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)
    return parser, add_group(parser, "input")


def add_group(parser: argparse.ArgumentParser, title: str, about: str | None = None) -> Add:
    """`add_option` to a new group."""
    return partial(add_option, parser.add_argument_group(title, about))


def add_option(
    group: argparse._ActionsContainer, name: str, value: str, about: str, **more: Any
) -> None:
    """Add an option or argument, whose help ends with its default.

    name: a short one may stand before it. value: what stands for its value: N for a whole number,
    X for a number, "" for a switch. more: of argparse.
    """
    if value:
        more = {"metavar": value, "type": {"N": int, "X": float}.get(value, str), **more}
    elif "action" not in more:
        more["action"] = "store_true"
    default = more.get("default")
    if isinstance(default, str | int | float) and default is not False:
        about += " (default: %(default)s)"
    group.add_argument(*name.split(), help=about, **more)


def positive(text: str) -> float:
    """A number above 0, of an option."""
    with suppress(ValueError):
        value = float(text)
        if 0 < value <= 1e9:
            return value
    raise argparse.ArgumentTypeError(f"{text} is not a number above 0")


def add_data_set(add: Add, formats: Sequence[str], problems: str) -> None:
    """Add the options of a data set but --split. problems: what --on-problem skip skips."""
    add("--format", "FORMAT", ", ".join(formats), choices=formats)
    about = "the captions: a table, shards, a folder of photos with texts, or a file in --format"
    add("--annotations", "FILE", about)
    add("--images", "FOLDER", "the photos (default: where the captions are)")
    add("--on-problem", "ACTION", f"refuse or skip {problems}", **ON_PROBLEM)


def check_data_set(arguments: argparse.Namespace) -> None:
    """Raise `UserError` unless the options name one data set."""
    if arguments.format != "shapes" and not arguments.annotations:
        raise UserError("give the data set: --annotations")
    for name in ("annotations", "images", "split", "instances"):
        if arguments.format == "shapes" and getattr(arguments, name, None):
            raise UserError(f"--format shapes generates its pictures: leave out --{name}")


def report_left_out(left_out: Mapping[str, str] | None, count: int) -> None:
    """Report which of `count` photos could not be read, and why."""
    if left_out:
        for reason in left_out.values():
            report(reason)
        report(f"{len(left_out):,} of {count:,} photos could not be read and do not count")


def add_machine(
    parser: argparse.ArgumentParser, batch: str = "", batch_size: int = 0, precision: bool = True
) -> None:
    """Add --device and, if `batch` says what --batch-size counts, that and --precision."""
    add = add_group(parser, "machine")
    add("--device", "DEVICE", "cpu, cuda, cuda:N, mps or auto", default="auto")
    if batch and precision:
        choices = ("float32", "bfloat16")
        about = "float32 (TF32 on CUDA), or bfloat16"
        add("--precision", "PRECISION", about, choices=choices, default="float32")
        about = "graphs (no torch), torch, or auto: graphs on a CPU in float32, if there are any"
        add("--engine", "ENGINE", about, choices=("auto", "graphs", "torch"), default="auto")
    if batch:
        add("--batch-size", "N", batch, default=batch_size)


def machine(arguments: argparse.Namespace, needs_torch: bool | None = False) -> dict[str, Any]:
    """The arguments of `load` that the options of `add_machine` give.

    needs_torch: for sampling and other alignments, which take torch, if it is there. A GPU is set
        to its fast kernels.
    """
    device = arguments.device
    engine = arguments.engine
    if engine == "auto" and needs_torch and find_spec("torch") is not None:
        engine = "torch"
    if engine != "graphs" and may_have_gpu(device):
        from captioner.devices import fast_device

        device = fast_device(device)
    return {"device": device, "precision": arguments.precision, "engine": engine}


def add_search(
    parser: argparse.ArgumentParser, kind: type[AnySearch], explained_in: str = ""
) -> None:
    """Add an option for every field of a search.

    explained_in: the command whose help lists them all; --n-best is left out.
    """
    where = f"--beam, --sample and more: see captioner {explained_in} --help"
    add = add_group(parser, "search (defaults: the model's own)", where if explained_in else None)
    for name, field in kind.model_fields.items():
        if name != "n_best" or not explained_in:
            about = argparse.SUPPRESS if explained_in else field.description
            add_field(add, name, field, about, default=None)


def add_field(add: Add, name: str, field: FieldInfo, about: str | None, **more: object) -> None:
    """Add the option of a config's field. Its title stands for the value of a text."""
    value = field.title or {int: "N", float: "X"}.get(field.annotation, "")  # type: ignore[arg-type]
    if values := choices(field.annotation):
        more["choices"] = values
    add(f"--{name.replace('_', '-')}", value, about, **more)


def search_options(arguments: argparse.Namespace, search: Search) -> Search:
    """A model's search options, overridden by the command line."""
    names = type(search).model_fields
    return search.override(**{name: getattr(arguments, name, None) for name in names})


def add_outputs(add: Add, json: str = "write the scores", csv: str = "") -> None:
    """Add --json, --csv unless its help is empty, and --overwrite."""
    add("--json", "FILE", json)
    if csv:
        add("--csv", "FILE", csv)
    add("--overwrite", "", OVERWRITE)


def check_outputs(files: Sequence[tuple[str, str | None]], overwrite: bool) -> None:
    """`check_files` of the options that are given."""
    check_files([(option, path) for option, path in files if path is not None], overwrite)


def write_scores(
    scores: Scores, json: str | None, csv: str | None = None, problems: Sequence[Problems] = ()
) -> int:
    """Report problems, print the table of scores, write the files; 2 if there are any."""
    for collected in problems:
        for sentence in collected.sentences:
            report(sentence)
    print(scores.table(), flush=True)
    if json:
        write_json(json, scores.to_dict())
    if csv:
        write_text(csv, csv_text(scores.rows()))
    return 2 if any(map(len, problems)) else 0
