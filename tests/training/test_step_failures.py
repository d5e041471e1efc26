"""What goes wrong in a step is one sentence, with the last checkpoint whole, whoever meets it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from samples import Patch
from training_samples import (
    STEPS,
    Data,
    at,
    content_of,
    make_model,
    raising,
    run,
)

from captioner.errors import UserError
from captioner.training.step import Stepper

NO_NUMBER = "the model's output is not a number, or too large for one, at step 6, in epoch 2: lower"
NO_MEMORY = (
    r"not enough memory on cpu for step 6, in epoch 2: lower training\.batch_size "
    r"\(data\.batch_tokens of translation\), or cut the steps into parts by "
    r"training\.accumulate; .*last\.safetensors is from before it"
)


def run_failing(folder: Path, error: Exception, **options: Any) -> None:
    model = make_model()
    run(folder, Data(at(1, 1, partial(model.add_to_loss, raising(error)))), model=model, **options)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("the output is not a number"), NO_NUMBER + " .*last.safetensors is from before"),
        (torch.OutOfMemoryError("CUDA out of memory."), NO_MEMORY),
        (RuntimeError("MPS backend out of memory (MPS allocated: 18 GB)"), NO_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublas"), NO_MEMORY),
        (UserError("photo 7 is gone"), "photo 7 is gone"),
    ],
)
def test_what_a_forward_pass_raises_is_a_sentence(
    tmp_path: Path, error: Exception, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        run_failing(tmp_path, error)
    _, tensors = content_of(tmp_path)
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_what_the_compiler_lacks_is_said_in_a_line(tmp_path: Path) -> None:
    """The first line of some of its errors names the backend only."""
    kind = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    error = kind("backend='inductor' raised:\nCppCompileError: no header\nCommand:\ng++ a.cpp")
    with pytest.raises(UserError, match=r"raised: CppCompileError: no header$"):
        run_failing(tmp_path, error, compile=True)


def test_a_mistake_in_the_program_is_not_called_a_loss(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        run_failing(tmp_path, RuntimeError("The size must match the size of tensor b"))


@pytest.mark.parametrize("options", [{}, {"optimizer": "rmsprop"}, {"average": 0.9}])
def test_where_a_step_waits_for_nothing_its_weights_stay_numbers(
    tmp_path: Path, monkeypatch: Patch, options: dict[str, Any]
) -> None:
    """As on a GPU: the failure is found at the end of the epoch, and is that of its first step."""
    monkeypatch.setattr(Stepper, "__init__", waiting_for_nothing)
    model = make_model()
    seen: list[bool] = []

    def spoil(epoch: int, step: int, rank: int) -> None:
        model.extra = lambda: torch.nan if (epoch, step) == (1, 1) else 0.0
        seen.append(all(bool(each.isfinite().all()) for each in model.parameters()))

    with pytest.raises(UserError, match=r"the loss is nan and .* at step 6, in epoch 2"):
        run(tmp_path, Data(spoil), model=model, **options)
    assert len(seen) == 2 * STEPS
    assert all(seen)
    assert content_of(tmp_path)[0]["step"] == STEPS


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_where_a_step_waits_for_nothing_a_sound_run_is_the_same(
    tmp_path: Path, monkeypatch: Patch, optimizer: str
) -> None:
    run(tmp_path / "waiting", optimizer=optimizer)
    monkeypatch.setattr(Stepper, "__init__", waiting_for_nothing)
    run(tmp_path / "not", optimizer=optimizer)
    (_, expected), (_, found) = (content_of(tmp_path / name) for name in ("waiting", "not"))
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


made = Stepper.__init__


def waiting_for_nothing(self: Stepper, *given: Any) -> None:
    made(self, *given)
    self._is_synchronous = False


def test_weights_that_are_lost_are_not_saved(tmp_path: Path) -> None:
    """The loss and its gradient may be numbers for a step more."""
    sentence = "a weight is not a number, or too large for one, at step 1, in "
    with pytest.raises(UserError, match=sentence):
        run(tmp_path, learning_rate=1e30, epochs=1, checkpoint_seconds=0.0)
    assert not (tmp_path / "last.safetensors").exists()


def test_the_steps_of_a_run_without_end_are_not_counted(tmp_path: Path) -> None:
    asked: list[int] = []

    def counted(epoch: int) -> int:
        asked.append(epoch)
        if len(asked) > 20:
            raise KeyboardInterrupt
        return STEPS

    for schedule in ("cosine", "plateau"):
        asked.clear()
        data = Data(at(2, 0, raising(UserError("enough"))))
        data.steps = counted  # type: ignore[method-assign]
        with pytest.raises(UserError, match="enough"):
            run(tmp_path / schedule, data, epochs=10**6, schedule=schedule)
