"""Captions photos and shows, for every word, where the model attended.

  captioner caption --demo --overlay demo.png     try it on a packaged photo
  captioner caption photo.jpg --html photo.html   a page to point at words
  captioner train configs/shapes_soft.yaml        train a model without data
  captioner translate sentences.en                English to German
  captioner serve                                 a page for all that

captioner COMMAND --help shows its options and examples.
"""

import argparse
import atexit
import gc
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import captioner
from captioner.cli import caption, evaluate, models, serve, train, translate, write
from captioner.cli.program import run_program
from captioner.cli.shared_options import CommandParser, help_formatter
from captioner.errors import refuse_missing

SHELLS = ("bash", "zsh", "fish")

_FILES = ("FILE", "PATH", "CONFIG", "RESULTS", "REFERENCES", "SOURCE", "TRANSLATIONS")
_FOLDERS = ("FOLDER", "MODEL")


class PrintCompletion(argparse.Action):
    """Prints the script of a shell for a parser, and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, _: Any, shell: Any, *__: Any) -> None:
        """Print and exit."""
        with refuse_missing("completion needs shtab", "completion"):
            import shtab

        def mark(parser: argparse.ArgumentParser) -> None:
            """Mark files and folders for `shtab`, and show all options to it."""
            for action in parser._actions:
                if action.metavar in (*_FILES, *_FOLDERS):
                    kind = shtab.FILE if action.metavar in _FILES else shtab.DIRECTORY
                    action.complete = kind  # type: ignore[attr-defined]
                if action.help == argparse.SUPPRESS:  # `shtab` would leave the option out.
                    action.help = action.dest.replace("_", " ")
                if isinstance(action.choices, dict):
                    for command in action.choices.values():
                        command.description = None  # The summary is shown.
                        mark(command)

        mark(parser)
        print(shtab.complete(parser, shell))
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    usage = "captioner COMMAND [options]"
    parser = CommandParser("captioner", usage, __doc__, formatter_class=help_formatter)
    parser.add_argument("--version", action="version", version=f"captioner {captioner.__version__}")
    about = "print a script that completes commands, options and files in this shell"
    parser.add_argument("--completion", action=PrintCompletion, choices=SHELLS, help=about)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog="captioner"
    )
    for module in (caption, write, translate, serve, train, evaluate, models):
        module.add_commands(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, as `run_program` does."""
    # torch's threads would spin while they wait, which slows a busy machine several times.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Pillow reports oddities of files that it can read.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    atexit.register(gc.freeze)

    def run() -> int | None:
        words = sys.argv[1:] if arguments is None else arguments
        parsed = build_parser().parse_args(words or ["--help"])
        return parsed.run(parsed)  # type: ignore[no-any-return]

    return run_program(run)
