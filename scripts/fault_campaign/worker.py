"""Runs tasks in a separate process, which may crash or hang, and reports how each ended.

Of a task the outcome is `accepted`, `refused` (one sentence), `traces` or `lost`.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from captioner.caption import load_model
from captioner.caption.caption_photos import Captioned, caption_photos, named_photos
from captioner.errors import UserError
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.read_sources import read_split
from captioner.translate import load_translator

PATIENCE = 20.0
"""Seconds for a task."""

BEGINNING = 120.0
"""Seconds for a worker to begin, which imports the package."""

Outcome = tuple[str, str]
"""What became of a case, and what is known about it."""


def photo(model: Path, good: Path, bad: Path) -> Outcome:
    """Caption a damaged photo between two good ones, which must be captioned."""
    found = list(caption_photos(load_model(model), named_photos([good, bad, good], 200)))
    if not all(isinstance(found[place], Captioned) for place in (0, 2)):
        return "lost", str(found)
    return "accepted" if isinstance(found[1], Captioned) else "refused", ""


def config(path: Path) -> Outcome:
    """Read a config."""
    read_any_recipe(path)
    return "accepted", ""


def data(format: str, annotations: Path, images: Path) -> Outcome:
    """Read a data set."""
    split = "train" if format == "karpathy" else None
    read_split(format, annotations, images, split, "refuse")
    return "accepted", ""


def captioner_folder(folder: Path, good: Path, weights_are_damaged: bool) -> Outcome:
    """Load a captioner and caption with it; weights that were damaged must be refused."""
    load_model(folder).caption([good])
    return ("lost", "damaged weights") if weights_are_damaged else ("accepted", "")


def translator_folder(folder: Path, weights_are_damaged: bool) -> Outcome:
    """Load a translator and translate with it; weights that were damaged must be refused."""
    load_translator(folder).translate(["a dog"])
    return ("lost", "damaged weights") if weights_are_damaged else ("accepted", "")


class Worker:
    """A process that does tasks, replaced when it crashed or hung."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, inner = context.Pipe()
        self.process = context.Process(target=_do_tasks, args=(inner,), daemon=True)
        self.process.start()
        inner.close()
        self.pipe.poll(BEGINNING)
        self.pipe.recv()

    def do(self, task: Callable[..., Outcome], *arguments: object) -> Outcome:
        """The outcome of a task."""
        case = f"{task.__name__} {arguments}"
        try:
            self.pipe.send((task, arguments))
            if self.pipe.poll(PATIENCE):
                outcome, text = self.pipe.recv()
                return outcome, f"{case}\n{text}"
            outcome = "hangs"
        except (EOFError, OSError):
            outcome = "crashes"
        self.close()
        self._begin()
        return outcome, case

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _do_tasks(pipe: Connection) -> None:
    """Do what comes through a pipe, until it is closed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # Libraries print.
    os.dup2(nowhere, 2)
    pipe.send(None)
    while True:
        task, arguments = pipe.recv()
        try:
            outcome = task(*arguments)
        except UserError as error:
            is_sentence = str(error).strip() and "\n" not in str(error)
            outcome = ("refused" if is_sentence else "traces"), str(error)
        except Exception:
            outcome = "traces", traceback.format_exc()
        pipe.send(outcome)
