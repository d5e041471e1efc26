"""What the configs of all models check of their fields."""

from __future__ import annotations

from typing import Any

from captioner.errors import UserError

CELLS = ("gru", "lstm")
"""The kinds of recurrent cells."""

TIES = ("none", "target", "all")
"""Which embeddings are one matrix: see `captioner.translate.embeddings.Embeddings`."""


def check_sizes(model: str, config: Any, *names: str) -> None:
    """Raise `UserError` naming the first of these fields that is below 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise UserError(f"{model} {name} {getattr(config, name)} is not at least 1")


def check_probabilities(model: str, config: Any, *names: str) -> None:
    """Raise `UserError` naming the first of these fields that is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{model} {name} {getattr(config, name)} is not in [0, 1)")


def check_choice(model: str, config: Any, name: str, choices: tuple[str, ...]) -> None:
    """Raise `UserError` where this field is not one of the choices."""
    if getattr(config, name) not in choices:
        raise UserError(
            f"{model} {name} {getattr(config, name)!r} is not one of {', '.join(choices)}"
        )


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
