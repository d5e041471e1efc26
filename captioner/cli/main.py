"""`captioner`: reads the command line, runs the command, turns errors into one sentence."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

import captioner
from captioner.cli import caption, evaluate, features, info, train
from captioner.errors import UserError

DESCRIPTION = """\
Captions photos and shows, for every word, where the model looked.

  captioner caption --demo --overlay demo.png     caption a photo that is on every machine
  captioner caption photo.jpg --html photo.html   a page on which to point at words
  captioner caption holiday/ --json holiday.json  a whole folder
  captioner train configs/shapes_soft.yaml        train a model, in minutes, without data
  captioner COMMAND --help                        what a command can do, with examples
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="captioner",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"captioner {captioner.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (caption, train, evaluate, features, info):
        module.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    0: all went well. 2: something the person gave is wrong, or a photo of a batch was; said on
    standard error. 130: interrupted.
    """
    parsed = build_parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"captioner: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("captioner: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read the output has left; nothing more can be said to them.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13


if __name__ == "__main__":
    sys.exit(main())
