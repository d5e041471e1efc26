"""What configs check of their fields, each in one sentence that names section and field."""

from __future__ import annotations

from typing import Any

from captioner.errors import UserError


def check_sizes(section: str, config: Any, *names: str) -> None:
    """Raise `UserError` naming the first of these fields that is below 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise UserError(f"{section} {name} {getattr(config, name)} is not at least 1")


def check_probabilities(section: str, config: Any, *names: str) -> None:
    """Raise `UserError` naming the first of these fields that is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{section} {name} {getattr(config, name)} is not in [0, 1)")


def check_choice(section: str, config: Any, name: str, choices: tuple[str, ...]) -> None:
    """Raise `UserError` where this field is not one of the choices."""
    if getattr(config, name) not in choices:
        raise UserError(
            f"{section} {name} {getattr(config, name)!r} is not one of {', '.join(choices)}"
        )
