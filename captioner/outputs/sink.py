"""What a sink is: one kind of output, to which each record of a run is given."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from captioner.caption.caption import Caption
from captioner.outputs.options import OutputOptions
from captioner.outputs.record import PhotoRecord
from captioner.vision.images import ImageSource, Report


@dataclass(frozen=True)
class Run:
    """What sinks know of a run. report: takes sentences for people."""

    options: OutputOptions = field(default_factory=OutputOptions)
    photos: dict[str, ImageSource] = field(default_factory=dict)
    report: Report = print


class Sink:
    """One kind of output.

    A `UserError` of `draw` or `add` is a problem of the photo alone: its record names it, and the
    run goes on; one of a table ends the run.

    path: the value of its option.
    needs_maps: whether it takes captions with their maps of all photos, also where a run resumes.
    takes_unsure: whether it takes captions that --min-confidence leaves out.
    takes_any_order: whether `add` works in any thread.
    """

    needs_maps = False
    takes_unsure = False
    takes_any_order = False

    def __init__(self, path: str, run: Run) -> None:
        self.path = path
        self.run = run

    def files(self, photo: str) -> Mapping[str, str]:
        """The files that it writes for a photo, by option."""
        return {}

    def has(self, record: PhotoRecord) -> bool:
        """Whether an earlier run made all of a record: its files are there, and it has them."""
        wanted = self.files(record.image).items()
        are_there = (option in record.files and os.path.exists(path) for option, path in wanted)
        return bool(wanted) and all(are_there)

    def is_finished(self, photo: str) -> bool:
        """Whether an earlier run wrote all for a photo, where the sink resumes without a table."""
        return False

    def draw(self, record: PhotoRecord, caption: Caption) -> None:
        """Draw the model's caption, which has its photo; in any thread, before `add`."""

    @property
    def draws(self) -> bool:
        """Whether it draws photos."""
        return type(self).draw is not Sink.draw

    def add(self, record: PhotoRecord) -> None:
        """Take a record; they come in order, unless it takes any."""

    def close(self) -> None:
        """Write what is left, also when the run is interrupted."""
