from __future__ import annotations

import pytest
import torch
from torch import nn

from captioner.errors import UserError
from captioner.training import memory_limit

CPU = torch.device("cpu")


def test_a_model_that_no_machine_holds_is_refused_before_it_is_made() -> None:
    message = r"has 1,152,921,503,533,105,152 parameters, whose training needs 18,446,744,057 GB"
    with pytest.raises(UserError, match=message):
        memory_limit.check_memory(lambda: nn.Linear(2**30, 2**30 - 1, bias=False), CPU)


def test_the_memory_of_values_gradients_and_moments_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for present, is_refused in ((16 * 99, True), (16 * 100, False), (None, False)):
        monkeypatch.setattr(memory_limit, "memory_of", lambda device, present=present: present)
        if is_refused:
            with pytest.raises(UserError, match="has 100 parameters"):
                memory_limit.check_memory(lambda: nn.Linear(10, 10, bias=False), CPU)
        else:
            memory_limit.check_memory(lambda: nn.Linear(10, 10, bias=False), CPU)


def test_this_machine_has_memory() -> None:
    found = memory_limit.memory_of(CPU)
    assert found is None or found > 10**8
