"""Counts what became of cases."""

from __future__ import annotations

from dataclasses import dataclass, field

FAULTS = ("traces", "crashes", "hangs", "lost")


@dataclass
class Tally:
    """Cases by outcome. kept: a sentence for each fault."""

    tried: int = 0
    accepted: int = 0
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    kept: list[str] = field(default_factory=list)

    def count(self, outcome: str, text: str) -> None:
        """Count a case: `accepted`, `refused`, or a fault."""
        self.tried += 1
        self.accepted += outcome == "accepted"
        if outcome in FAULTS:
            self.faults[outcome] += 1
            self.kept.append(f"{outcome}: {text}")
