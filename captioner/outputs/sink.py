"""What a sink is: one kind of output, to which each record of a run is given."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from captioner.files import real_path
from captioner.outputs.options import OutputOptions
from captioner.outputs.record import PhotoRecord
from captioner.vision.images import ImageSource, Report


@dataclass(frozen=True)
class Run:
    """What sinks know of a run. report: takes sentences for people."""

    options: OutputOptions = field(default_factory=OutputOptions)
    photos: Mapping[str, ImageSource] = field(default_factory=dict)
    report: Report = print

    def note(self, sentence: str) -> None:
        """Report a sentence that is no error, unless --quiet."""
        if not self.options.quiet:
            self.report(sentence)


class Sink:
    """One kind of output.

    A `UserError` of `draw` or `add` is a problem of the photo alone: its record names it, and the
    run goes on; one of a table ends the run.

    path: the value of its option. is_table: whether it comes after all that writes into records.
    is_drawn: whether it has `draw`. needs_all: whether it takes captions with their maps of all
    photos, also where a run resumes. is_incremental: whether it takes of an earlier run only what
    has changed. keeps_all: whether it takes captions that --min-confidence leaves out.
    """

    is_table = is_drawn = needs_all = is_incremental = keeps_all = False

    def __init__(self, path: str, run: Run) -> None:
        self.path = path
        self.run = run

    def files(self, photo: str) -> Mapping[str, str]:
        """The files that it writes for a photo, by option."""
        return {}

    def has_files(self, record: PhotoRecord) -> bool:
        """Whether the files of a photo are where its record says."""
        return all(
            option in record.files and _is_same(record.files[option], path) and os.path.exists(path)
            for option, path in self.files(record.image).items()
        )

    def draw(self, record: PhotoRecord) -> None:
        """Draw `record.drawn`, a caption on its photo; in any thread, before `add`."""

    def add(self, record: PhotoRecord) -> None:
        """Take a record; they come in order."""

    def close(self) -> None:
        """Write what is left, also when the run is interrupted."""


def _is_same(recorded: str, path: str) -> bool:
    """Whether a recorded path is this one, perhaps from another working folder: the end of it."""
    if real_path(recorded) == real_path(path):
        return True
    parts = [part for part in Path(recorded).parts if part != os.pardir]
    is_elsewhere = not os.path.lexists(recorded)
    return is_elsewhere and (*parts,) == Path(os.path.abspath(path)).parts[-len(parts) :]
