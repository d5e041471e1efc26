from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from samples import Patch
from torch import nn

from captioner.errors import UserError
from captioner.training import memory_limit

CPU = torch.device("cpu")


def test_a_model_that_no_machine_holds_is_refused_before_it_is_made() -> None:
    message = r"has 1,152,921,503,533,105,152 parameters, whose training needs 18,446,744,057 GB"
    with pytest.raises(UserError, match=message):
        memory_limit.check_memory(lambda: nn.Linear(2**30, 2**30 - 1, bias=False), CPU)


@pytest.mark.parametrize(("present", "is_refused"), [(1599, True), (1600, False), (None, False)])
def test_the_memory_of_values_gradients_and_moments_counts(
    monkeypatch: Patch, present: int | None, is_refused: bool
) -> None:
    monkeypatch.setattr(memory_limit, "memory_of", lambda device: present)
    error = pytest.raises(UserError, match="has 100 parameters")
    with error if is_refused else nullcontext():
        memory_limit.check_memory(lambda: nn.Linear(10, 10, bias=False), CPU)
