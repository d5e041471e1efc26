"""Two processes train to the weights of one, and stop, fail and resume as one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from samples import Patch, log_of
from training_samples import ALL_STEPS, EPOCHS, STEPS, as_two, content_of, make_model, run

from captioner.errors import UserError
from captioner.training.distributed import Processes


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what two processes did, started by torchrun."""
    folder = tmp_path_factory.mktemp("two")
    as_two(folder)
    return folder


def seen(two: Path, name: str) -> list[Any]:
    return [json.loads((two / f"{rank}.json").read_text())[name] for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "average"), [("plain", 0.0), ("averaged in parts", 0.9)])
def test_two_processes_train_to_the_weights_of_one(
    two: Path, tmp_path: Path, name: str, average: float
) -> None:
    model, validator, _ = run(tmp_path, model=make_model(0.0), average=average)
    first, second = seen(two, name)
    assert first["ended"] == second["ended"] == "done"
    assert first["weights"] == second["weights"]
    weights = [parameter.detach().flatten() for parameter in model.parameters()]
    torch.testing.assert_close([*map(torch.tensor, first["weights"])], weights)
    for ours, expected in zip(log_of(two / name), log_of(tmp_path), strict=True):
        assert ours == pytest.approx(expected, rel=1e-4)
    assert (first["kept"], second["kept"]) == (len(validator.kept), 0)


@pytest.mark.slow
def test_a_signal_at_one_process_stops_both_at_the_same_step(two: Path) -> None:
    first, second = seen(two, "stopped")
    assert first["given"] == second["given"]
    steps = len(first["given"])
    assert first["ended"].startswith(f"Interrupted: stopped after step {steps}; ")
    assert second["ended"] == "SystemExit: 130"
    assert STEPS < steps < EPOCHS * STEPS
    again = seen(two, "resumed")[0]
    assert [tuple(each) for each in first["given"] + again["given"]] == ALL_STEPS


@pytest.mark.slow
def test_resumed_two_processes_end_where_they_would_have_ended(two: Path) -> None:
    (_, found), (_, expected) = (content_of(two / name) for name in ("stopped", "dropout"))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert {"random.cpu", "random.cpu.1"} <= found.keys()
    assert not torch.equal(found["random.cpu"], found["random.cpu.1"])
    # The sums of a step's two halves, kept apart, are added up in another order.
    for ours, theirs in zip(log_of(two / "stopped"), log_of(two / "dropout"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12)


@pytest.mark.slow
def test_a_failure_in_one_process_ends_both(two: Path) -> None:
    """A loss that is no number, and an error while the other waits."""
    first, second = (each["ended"] for each in seen(two, "spoiled"))
    assert "gradient is nan at step 6, in epoch 2: lower learning_rate" in first
    assert second == "SystemExit: 2"
    _, tensors = content_of(two / "spoiled")
    assert [name for name, tensor in tensors.items() if not tensor.isfinite().all()] == []
    first, second = (each["ended"] for each in seen(two, "within a step"))
    assert first == "SystemExit: 2"
    assert "there is not enough memory on cpu for step 6, in epoch 2" in second
    assert content_of(two / "within")[0]["step"] == STEPS


def test_several_processes_do_not_share_one_gpu(monkeypatch: Patch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="train on cpu or cuda, not on cuda:1"):
        Processes("cuda:1")
    with pytest.raises(UserError, match="train on cpu or cuda, not on mps"):
        Processes("mps")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match=r"one of 2 processes, which torchrun should start, .*RANK"):
        Processes()
