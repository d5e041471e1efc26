"""What every refusal keeps to."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from captioner.errors import UserError


def refuses(sentence: str, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """Assert that a call raises `UserError` on one line, in which an expression is found."""
    with pytest.raises(UserError) as refusal:
        call(*arguments, **options)
    message = str(refusal.value)
    assert re.search(sentence, message)
    assert "\n" not in message
