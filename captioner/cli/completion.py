"""`captioner --completion`: a script that completes commands, options and files in a shell."""

from __future__ import annotations

import argparse
from typing import Any

SHELLS = ("bash", "zsh", "fish")

_FILES = ("FILE", "PATH", "CONFIG", "RESULTS", "REFERENCES", "SOURCE", "TRANSLATIONS")
_FOLDERS = ("FOLDER", "MODEL")


class PrintCompletion(argparse.Action):
    """Prints the script of a shell for a parser, and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, _: Any, shell: Any, *__: Any) -> None:
        """Print and exit."""
        import shtab

        _describe(parser)
        print(shtab.complete(parser, shell))
        parser.exit()


def _describe(parser: argparse.ArgumentParser) -> None:
    """Mark arguments that are files and folders, for `shtab`, which leaves out hidden options."""
    import shtab

    for action in parser._actions:
        name = action.metavar or action.dest.upper()
        if name in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif name in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        if action.help == argparse.SUPPRESS:
            action.help = action.dest.replace("_", " ")
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                command.description = None  # The line of `captioner --help` is shown.
                _describe(command)
