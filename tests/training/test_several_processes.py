"""Two processes train to the weights of one, and stop, fail and resume as one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import launched
import pytest
import torch
from samples import Patch
from training_samples import (
    ALL_STEPS,
    EPOCHS,
    STEPS,
    as_two,
    content_of,
    log_of,
    make_model,
    run,
)

import captioner
from captioner.errors import UserError
from captioner.training import Engine
from captioner.training.engine import _place


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what two processes did, started by torchrun."""
    folder = tmp_path_factory.mktemp("two")
    as_two(folder)
    return folder


def seen(two: Path, name: str) -> list[Any]:
    return [json.loads((two / f"{rank}.json").read_text())[name] for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "average"), [("plain", 0.0), ("parts", 0.0), ("averaged", 0.9)])
def test_two_processes_train_to_the_weights_of_one(
    two: Path, tmp_path: Path, name: str, average: float
) -> None:
    model, validator, _ = run(tmp_path, model=make_model(0.0), average=average)
    first, second = seen(two, name)
    assert first["ended"] == second["ended"] == "done"
    assert first["weights"] == second["weights"]
    for found, parameter in zip(first["weights"], model.parameters(), strict=True):
        torch.testing.assert_close(torch.tensor(found), parameter.detach().flatten())
    for ours, expected in zip(log_of(two / name), log_of(tmp_path), strict=True):
        assert ours == pytest.approx(expected, rel=1e-4)
    assert (first["kept"], second["kept"]) == (len(validator.kept), 0)


def test_parts_of_a_step_are_one_step(tmp_path: Path) -> None:
    whole, _, _ = run(tmp_path / "whole", model=make_model(0.0))
    parts, _, _ = run(tmp_path / "parts", model=make_model(0.0), accumulate=3)
    one, _, _ = run(tmp_path / "other", model=make_model(0.0), epochs=EPOCHS - 1)
    for first, second in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(first, second)
    assert not torch.allclose(next(whole.parameters()), next(one.parameters()), atol=1e-3)
    for ours, expected in zip(log_of(tmp_path / "parts"), log_of(tmp_path / "whole"), strict=True):
        assert ours == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_a_signal_at_one_process_stops_both_at_the_same_step(two: Path) -> None:
    first, second = seen(two, "stopped")
    assert first["given"] == second["given"]
    steps = len(first["given"])
    assert first["ended"].startswith(f"Interrupted: stopped after step {steps}; ")
    assert second["ended"] == "exit 130"
    assert STEPS < steps < EPOCHS * STEPS
    again = seen(two, "resumed")[0]
    assert [tuple(each) for each in first["given"] + again["given"]] == ALL_STEPS


@pytest.mark.slow
def test_resumed_two_processes_end_where_they_would_have_ended(two: Path) -> None:
    (_, found), (_, expected) = (content_of(two / name) for name in ("stopped", "dropout"))
    assert found.keys() == expected.keys()
    assert {"random.cpu", "random.cpu.1"} <= found.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name
    assert not torch.equal(found["random.cpu"], found["random.cpu.1"])
    # The sums of a step's two halves, kept apart, are added up in another order.
    for ours, theirs in zip(log_of(two / "stopped"), log_of(two / "dropout"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12)


@pytest.mark.slow
def test_an_error_of_one_process_ends_both(two: Path) -> None:
    first, second = seen(two, "failed")
    assert second["ended"] == "UserError: photo 7 is gone"
    assert first["ended"] == "exit 2"
    assert content_of(two / "failed")[0]["epoch"] == 1


@pytest.mark.slow
def test_a_loss_that_is_no_number_in_one_process_ends_both(two: Path) -> None:
    ends = [each["ended"] for each in seen(two, "spoiled")]
    assert "exit 2" in ends
    sentence = next(each for each in ends if each != "exit 2")
    assert "at step 6, in epoch 2: lower learning_rate" in sentence
    _, tensors = content_of(two / "spoiled")
    assert all(tensor.isfinite().all() for tensor in tensors.values())


@pytest.mark.slow
def test_an_error_amid_a_step_does_not_leave_the_other_process_waiting(two: Path) -> None:
    """The other one is in the sum of the gradients then."""
    first, second = (each["ended"] for each in seen(two, "amid a step"))
    assert first == "exit 2"
    assert "there is not enough memory on cpu for step 6, in epoch 2" in second
    assert content_of(two / "amid")[0]["step"] == STEPS


@pytest.mark.slow
def test_the_baseline_of_hard_attention_is_of_all_processes(two: Path) -> None:
    words = 2 + 3 + 2  # The fourth caption was not drawn.
    expected = 0.9 * -1.0 + 0.1 * (-4 - 6 - 9) / words
    assert seen(two, "baseline") == [pytest.approx(expected)] * 2


# Alone.


def test_several_processes_do_not_share_one_gpu(monkeypatch: Patch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="device 'cuda:1' is one GPU, but there are several"):
        Engine("cuda:1")
    with pytest.raises(UserError, match="train on cpu or cuda, not on mps"):
        Engine("mps")


def test_products_in_float32_use_tf32_on_a_gpu() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        Engine("cpu")
        assert torch.get_float32_matmul_precision() == before
        Engine("cuda")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


# Other launchers than torchrun.


def launch(device: str, *environments: dict[str, str]) -> list[tuple[int, str]]:
    """Start one process for each of these environments: exit codes and outputs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared = {**os.environ, "PYTHONPATH": str(Path(captioner.__file__).parents[1]), **address}
    processes = [
        subprocess.Popen(
            [sys.executable, launched.__file__, device],
            env={**shared, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    return [(each.returncode, said) for each, said in zip(processes, outputs, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "rank"), [("WORLD_SIZE", "RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")]
)
def test_a_launcher_need_not_say_what_is_on_a_machine(size: str, rank: str) -> None:
    found = launch("cpu", {size: "2", rank: "0"}, {size: "2", rank: "1"})
    assert [(code, json.loads(said)) for code, said in found] == [
        (0, [0, 2, 2, "cpu", [0, 1]]),
        (0, [1, 2, 2, "cpu", [0, 1]]),
    ]


@pytest.mark.slow
def test_a_machine_with_too_few_gpus_is_refused_by_all_processes() -> None:
    first, second = launch(
        "cuda", {"WORLD_SIZE": "2", "RANK": "0"}, {"WORLD_SIZE": "2", "RANK": "1"}
    )
    name = socket.gethostname()
    assert f"there are 2 processes on the machine {name} and 1 GPUs; each" in json.loads(first[1])
    assert second[0] != 0
    assert second[1] == ""


def test_a_launcher_must_say_where_the_processes_meet(monkeypatch: Patch) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(UserError, match="one of 4 processes, but RANK and MASTER_ADDR and MASTER"):
        Engine()
    monkeypatch.setenv("SLURM_PROCID", "3")
    with pytest.raises(UserError, match="but MASTER_ADDR and MASTER_PORT of their environment is"):
        Engine()


def test_the_place_of_a_process_is_the_launchers_or_by_the_machines_names(
    monkeypatch: Patch,
) -> None:
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    hosts = ["a", "b", "a", "b", "b"]
    assert [_place(hosts, rank) for rank in range(5)] == [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    monkeypatch.setenv("SLURM_LOCALID", "1")
    assert _place(["same", "same", "same"], 2) == (1, 3)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert _place(["same", "same"], 1) == (0, 1)
