"""What a translator says of one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Translation:
    """A translation and, for every token, where the model looked when it wrote it.

    text: as it is written. source_tokens: S tokens that were read, the last of which is "<end>".
    tokens: T tokens that were written, in words or pieces.
    log_probability: natural logarithm of the translation's probability, its ending included.
    token_log_probabilities: T numbers, one a token.
    alignment: (T, S), float32 on the CPU: row t is where the model looked as it wrote token t.
        (T, 0) for a model without attention.
    truncated: how many tokens at the end of the source were not read, as it was too long.
    alternatives: the other translations asked for (n-best), best first; empty otherwise.

    Two translations are equal when all but their alignments is.
    """

    text: str
    source_tokens: tuple[str, ...]
    tokens: tuple[str, ...]
    log_probability: float
    token_log_probabilities: tuple[float, ...]
    alignment: Tensor = field(compare=False)
    truncated: int = 0
    alternatives: tuple[Translation, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The plain form for JSON, the alignment with it, rounded to four places."""
        plain: dict[str, Any] = {
            "translation": self.text,
            "source_tokens": list(self.source_tokens),
            "tokens": list(self.tokens),
            "log_probability": self.log_probability,
            "token_log_probabilities": list(self.token_log_probabilities),
            "alignment": [[round(weight, 4) for weight in row] for row in self.alignment.tolist()],
        }
        if self.truncated:
            plain["truncated"] = self.truncated
        if self.alternatives:
            plain["alternatives"] = [other.as_dict() for other in self.alternatives]
        return plain
