"""What is wrong with the records of a data source, and whether that ends the reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from captioner.errors import UserError

OnProblem = Literal["refuse", "skip"]
"""Refuse the whole source, or leave out the records that have a problem and go on."""

ProblemKind = Literal[
    "missing image",
    "empty caption",
    "caption that is not valid Unicode",
    "caption without an image",
    "image without captions",
    "duplicate image",
    "duplicate caption",
    "image in two splits",
    "ill-formed line",
    "empty sentence",
]

_PLURALS: dict[ProblemKind, str] = {
    "missing image": "missing images",
    "empty caption": "empty captions",
    "caption that is not valid Unicode": "captions that are not valid Unicode",
    "caption without an image": "captions without an image",
    "image without captions": "images without captions",
    "duplicate image": "duplicate images",
    "duplicate caption": "duplicate captions",
    "image in two splits": "images in two splits",
    "ill-formed line": "ill-formed lines",
    "empty sentence": "empty sentences",
}

_NAMED_OF_EACH_KIND = 3


@dataclass(frozen=True)
class Problem:
    """One record that cannot be used.

    kind: what is wrong with it.
    record: which it is: "line 12", "image 42", "annotation 7".
    sentence: the whole of it in words, without the name of the source.
    """

    kind: ProblemKind
    record: str
    sentence: str


class Problems:
    """The problems met while reading one source, in the order in which they were met.

    Raises `UserError` when `on_problem` is neither "refuse" nor "skip".
    """

    def __init__(self, source: str, on_problem: OnProblem) -> None:
        if on_problem not in get_args(OnProblem):
            raise UserError(f'on_problem is {on_problem!r}, not "refuse" or "skip"')
        self.source = source
        self.on_problem = on_problem
        self._problems: list[Problem] = []

    def add(self, kind: ProblemKind, record: str, sentence: str) -> None:
        """Note a problem; reading goes on, so that all of them can be told at once."""
        self._problems.append(Problem(kind, _printable(record), _printable(sentence)))

    def counts(self) -> dict[ProblemKind, int]:
        """How many there are of each kind that occurs, in the order in which kinds were met."""
        counts: dict[ProblemKind, int] = {}
        for problem in self._problems:
            counts[problem.kind] = counts.get(problem.kind, 0) + 1
        return counts

    def summary(self) -> str:
        """One sentence: the source, the count of each kind, and the first few of each."""
        if not self._problems:
            return f"{self.source}: nothing left out"
        return f"{self.source}: left out {self._told()}"

    def settle(self) -> None:
        """Call when reading is over: under "refuse", raise `UserError` if there is a problem."""
        if self._problems and self.on_problem == "refuse":
            advice = 'in a config, on_problem "skip" leaves them out'
            raise UserError(f"{self.source} has {self._told()} ({advice})")

    def _told(self) -> str:
        parts = []
        for kind, count in self.counts().items():
            sentences = [problem.sentence for problem in self._problems if problem.kind == kind]
            named = "; ".join(sentences[:_NAMED_OF_EACH_KIND])
            if count > _NAMED_OF_EACH_KIND:
                named += f"; and {count - _NAMED_OF_EACH_KIND:,} more"
            parts.append(f"{count:,} {kind if count == 1 else _PLURALS[kind]} ({named})")
        return ", ".join(parts)

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._problems)


def _printable(text: str) -> str:
    # What is told here is written to logs, which half of a surrogate pair cannot be.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
