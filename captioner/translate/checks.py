"""What the configs of translation models check, beside `captioner.field_checks`."""

from __future__ import annotations

from typing import Any

from captioner.errors import UserError
from captioner.field_checks import check_choice

CELLS = ("gru", "lstm")
"""The kinds of recurrent cells."""

TIES = ("none", "target", "all")
"""Which embeddings are one matrix: see `captioner.translate.embeddings.Embeddings`."""


def check_even(model: str, config: Any, name: str, why: str) -> None:
    """Raise `UserError` where this field is odd, and say why it must not be."""
    if getattr(config, name) % 2:
        raise UserError(f"{model} {name} {getattr(config, name)} is odd: {why}")


def check_tie(model: str, config: Any, output_size: int) -> None:
    """Raise `UserError` where embeddings are tied to an output layer that reads another size."""
    check_choice(model, config, "tie_embeddings", TIES)
    if config.tie_embeddings != "none" and config.embedding_size != output_size:
        raise UserError(
            f"{model} tie_embeddings {config.tie_embeddings!r} needs an embedding_size of "
            f"{output_size}, what the output layer reads, not {config.embedding_size}"
        )
