"""The problems of a data source's records: collects, counts, reports or refuses them."""

from __future__ import annotations

import re
from typing import Literal

from captioner.errors import UserError

OnProblem = Literal["refuse", "skip"]
"""Refuse the whole source, or skip the records with a problem."""

IN_TRAINING = "in training --set data.on_problem=skip"


def or_other_format(format: str) -> str:
    """The end of a message about a file that may be of another format than this one."""
    return f"; if it is not {format}, name its format (--format, in training data.format)"


_LISTED_OF_EACH_KIND = 10


class Problems:
    """The problems of one source: sentences by kind, such as "line 12 has no words".

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
        self.kinds: dict[str, list[str]] = {}

    def add(self, kind: str, sentence: str) -> None:
        """Record a problem; `settle` reports all together."""
        self.kinds.setdefault(kind, []).append(_printable(sentence))

    def summary(self) -> str:
        """One sentence: the source, the count of each kind, and the first few of each."""
        if not self.kinds:
            return f"{self.source}: nothing left out"
        return f"{self.source}: left out {self._listing()}"

    def settle(self) -> None:
        """Under "refuse", raise `UserError` if there is a problem. Call after reading."""
        if self.kinds and self.on_problem == "refuse":
            advice = f"{self.skipping} leaves them out"
            raise UserError(f"{self.source} has {self._listing()} ({advice})")

    def _listing(self) -> str:
        parts = []
        for kind, sentences in self.kinds.items():
            count = len(sentences)
            listed = "; ".join(sentences[:_LISTED_OF_EACH_KIND])
            if count > _LISTED_OF_EACH_KIND:
                listed += f"; and {count - _LISTED_OF_EACH_KIND:,} more"
            parts.append(f"{count:,} {kind if count == 1 else _plural(kind)} ({listed})")
        return ", ".join(parts)

    def __len__(self) -> int:
        return sum(map(len, self.kinds.values()))


def _plural(kind: str) -> str:
    """The kind with its noun, the first, in the plural: "rows without a split"."""
    return re.sub("image|caption|line|sentence|row", r"\g<0>s", kind, count=1)


def _printable(text: str) -> str:
    # Half a surrogate pair cannot be written to a log.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
