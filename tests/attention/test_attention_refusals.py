"""A mistake about shapes, masks and heads is a `ValueError` that says what is wrong."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from captioner.attention.attention import Attention, MultiHeadAttention
from captioner.attention.memory import Memory
from captioner.attention.scores import DotScore


def memory(
    values: tuple[int, ...], keys: tuple[int, ...], mask: Tensor | None = None
) -> Callable[[], object]:
    return lambda: Memory(torch.zeros(values), torch.zeros(keys), mask)


def heads(memory_mask: Tensor | None, mask: Tensor | None, name: str) -> Callable[[], object]:
    """Multi-head attention of 4 queries to 3 positions of 2 sources, by `forward` or `context`."""

    def attend() -> object:
        attention = MultiHeadAttention(8, 6, 2)
        remembered = attention.remember(torch.zeros(2, 3, 6), memory_mask)
        return getattr(attention, name)(torch.zeros(2, 4, 8), remembered, mask)

    return attend


ALL, NONE = torch.ones(2, 5, dtype=torch.bool), torch.zeros(2, 5, dtype=torch.bool)
SECOND_EMPTY = torch.tensor([[True] * 5, [False] * 5])
CAUSAL = torch.ones(4, 3, dtype=torch.bool).tril()
LATE = torch.tensor([[True] * 3, [False, True, True]])
EMPTY = "row [1] has no position that may be attended"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (memory((2, 5, 3), (2, 4, 3)), "should be (B, L, ...), alike in all but"),
        (memory((2, 5, 3), (1, 5, 3)), "should be (B, L, ...), alike in all but"),
        (memory((5, 3), (5, 3)), "should be (B, L, ...), alike in all but"),
        (memory((2, 5, 3), (2, 5, 3), ALL[:, :4]), "should be (B, L) = (2, 5)"),
        (memory((2, 5, 3), (2, 5, 3), ALL[:1]), "should be (B, L) = (2, 5)"),
        (memory((2, 5, 3), (2, 5, 3), ALL[..., None]), "should be (B, L) = (2, 5)"),
        (
            memory((2, 5, 3), (2, 5, 3), ALL.float()),
            "must be boolean (True = may be attended), not",
        ),
        (memory((2, 5, 3), (2, 5, 3), SECOND_EMPTY), EMPTY),
        (memory((2, 0, 3), (2, 0, 3)), "there is nothing to attend, L is 0"),
        (memory((2, 0, 3), (2, 0, 3), ALL[:, :0]), "row [0] has no position"),
        (lambda: Attention(DotScore()).remember(torch.zeros(2, 5, 3), SECOND_EMPTY), EMPTY),
        (lambda: MultiHeadAttention(8, 6, 3), "size 8 cannot be divided among 3 heads"),
        (lambda: MultiHeadAttention(8, 6, 0), "size 8 cannot be divided among 0 heads"),
        (heads(NONE[:, :3], None, "forward"), "row [0] has no position"),
        (heads(LATE, CAUSAL, "forward"), "row [1, 0, 0] has no position"),
        (heads(LATE, CAUSAL, "context"), "row [1, 0, 0] has no position"),
        (heads(None, CAUSAL.float(), "forward"), "must be boolean"),
        (heads(None, ~CAUSAL, "context"), "row [2] has no position"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert sentence in str(caught.value)
