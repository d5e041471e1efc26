"""Results for one item or several, where a bad item may fail without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from captioner.background import in_background
from captioner.errors import UserError

Given = TypeVar("Given")
Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Failed:
    """A photo or sentence without a result, and the reason in one sentence."""

    name: str
    reason: str

    def __str__(self) -> str:
        return self.reason


def read_batches(
    named: Iterable[tuple[str, Given]],
    batch_size: int,
    read: Callable[[str, Given], Input],
    readers: int = 0,
) -> Iterator[list[Input | Failed]]:
    """Read so many items at a time. named: their names for messages, and what to read.

    An item fails for which `read` raises `UserError` or runs out of memory.
    readers: threads that read; 0: the calling one.
    """

    def attempt(item: tuple[str, Given]) -> Input | Failed:
        name, given = item
        try:
            return read(name, given)
        except UserError as error:
            return Failed(name, str(error))
        except MemoryError:
            return Failed(name, f"{name} needs more memory than there is")

    items = in_background(attempt, named, readers)
    while batch := list(islice(items, batch_size)):
        yield batch


def with_results(
    inputs: Iterable[Input | Failed], compute: Callable[[list[Input]], Iterable[Result]]
) -> list[Result | Failed]:
    """Replace inputs by their results, computed together; a `Failed` keeps its place."""
    inputs = list(inputs)
    results = iter(compute([each for each in inputs if not isinstance(each, Failed)]))
    return [each if isinstance(each, Failed) else next(results) for each in inputs]


def shape_as_given(given: Any, is_one: bool, outcomes: Iterator[Any], on_error: str) -> Any:
    """Outcomes in the form of what was given: one, an iterator, or for other collections a list.

    on_error: `raise` the reason of the first `Failed` as `UserError`, or `skip`: it is an outcome.
    """
    if on_error not in ("raise", "skip"):
        raise UserError(f"on_error {on_error!r} is neither 'raise' nor 'skip'")
    results = outcomes if on_error == "skip" else map(_unless_failed, outcomes)
    if is_one:
        return next(results)
    return results if isinstance(given, Iterator) else list(results)


def _unless_failed(outcome: Any) -> Any:
    if isinstance(outcome, Failed):
        raise UserError(outcome.reason)
    return outcome
