"""The problems of a data source's records: collects, counts, reports or refuses them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from captioner.errors import UserError

OnProblem = Literal["refuse", "skip"]
"""Refuse the whole source, or skip the records with a problem."""

IN_TRAINING = "in training --set data.on_problem=skip"

_LISTED_OF_EACH_KIND = 10


class Problem(NamedTuple):
    """A record that cannot be used: "line 12 has no words". The source is not named."""

    kind: str
    sentence: str


class Problems:
    """The problems of one source, in order.

    skipping: the options that skip them, for the refusal.
    """

    def __init__(
        self,
        source: str,
        on_problem: OnProblem,
        skipping: str = f"--on-problem skip, {IN_TRAINING},",
    ) -> None:
        self.skipping = skipping
        self.source = source
        self.on_problem = on_problem
        self._problems: list[Problem] = []

    def add(self, kind: str, sentence: str) -> None:
        """Record a problem; `settle` reports all together."""
        self._problems.append(Problem(kind, _printable(sentence)))

    def counts(self) -> dict[str, int]:
        """The number of problems of each kind, in order of first occurrence."""
        return dict(Counter(problem.kind for problem in self._problems))

    def summary(self) -> str:
        """One sentence: the source, the count of each kind, and the first few of each."""
        if not self._problems:
            return f"{self.source}: nothing left out"
        return f"{self.source}: left out {self._listing()}"

    def settle(self) -> None:
        """Under "refuse", raise `UserError` if there is a problem. Call after reading."""
        if self._problems and self.on_problem == "refuse":
            advice = f"{self.skipping} leaves them out"
            raise UserError(f"{self.source} has {self._listing()} ({advice})")

    def _listing(self) -> str:
        parts = []
        for kind, count in self.counts().items():
            sentences = [problem.sentence for problem in self._problems if problem.kind == kind]
            listed = "; ".join(sentences[:_LISTED_OF_EACH_KIND])
            if count > _LISTED_OF_EACH_KIND:
                listed += f"; and {count - _LISTED_OF_EACH_KIND:,} more"
            parts.append(f"{count:,} {kind if count == 1 else _plural(kind)} ({listed})")
        return ", ".join(parts)

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._problems)


def _plural(kind: str) -> str:
    """The kind with its noun, the first, in the plural: "rows without a split"."""
    return re.sub("image|caption|line|sentence|row", r"\g<0>s", kind, count=1)


def _printable(text: str) -> str:
    # Half a surrogate pair cannot be written to a log.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
