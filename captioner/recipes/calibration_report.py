"""What was measured of a confidence, as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from captioner.evaluation.calibration import Reliability


@dataclass(frozen=True)
class GroupScore:
    """What a confidence makes of a group of pictures.

    confidence: its mean. unsure: the share of them whose caption is called unsure. unfamiliar: the
    share told apart from the training photos. auroc: how well the confidence tells photos from
    them, 1 being always; None for the photos themselves.
    """

    count: int
    confidence: float
    unsure: float
    unfamiliar: float
    auroc: float | None


@dataclass(frozen=True)
class CalibrationReport:
    """Measured on photos and kinds of outliers that nothing was fitted to.

    fitted: how many validation photos were fitted to. photos: the others. reliability: of their
    captions. observed: the mean share of content words that people use of them.
    families, kinds: of outliers, by name.
    """

    fitted: int
    photos: GroupScore
    reliability: Reliability
    observed: float
    families: Mapping[str, GroupScore]
    kinds: Mapping[str, GroupScore]
    unsure_below: float

    def as_dict(self) -> dict[str, Any]:
        """All of it by name, for JSON."""
        return asdict(self)

    def table(self) -> str:
        """All of it as lines of text."""
        found = self.reliability
        lines = [
            f"fitted to {self.fitted:,} validation photos, measured on {self.photos.count:,} more",
            "",
            "confidence: the expected share of a caption's content words that people use",
            f"{'':<16}{'expected':>10}{'observed':>10}{'photos':>8}",
        ]
        for each in found.bins:
            label = f"{each.low:.1f} to {each.high:.1f}"
            lines.append(
                f"{label:<16}{each.predicted:>10.3f}{each.observed:>10.3f}{each.count:>8,}"
            )
        lines += [
            f"{'all':<16}{self.photos.confidence:>10.3f}{self.observed:>10.3f}"
            f"{self.photos.count:>8,}",
            f"expected calibration error {found.error:.4f}",
            "",
            f"not sure: a confidence below {self.unsure_below:g}; unlike: the training photos; "
            "AUROC: photos against pictures of kinds not fitted to",
            f"{'':<16}{'AUROC':>8}{'mean':>8}{'not sure':>10}{'unlike':>8}{'pictures':>10}",
            _line("photos", self.photos),
        ]
        lines += [_line(name, group) for name, group in self.families.items()]
        lines += [_line(f"  {name}", group) for name, group in self.kinds.items()]
        return "\n".join(lines)


def _line(name: str, group: GroupScore) -> str:
    area = "" if group.auroc is None else f"{group.auroc:.4f}"
    return (
        f"{name:<16}{area:>8}{group.confidence:>8.3f}{group.unsure:>10.1%}"
        f"{group.unfamiliar:>8.1%}{group.count:>10,}"
    )
