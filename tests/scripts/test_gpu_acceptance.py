"""The acceptance of a GPU runs on a CPU in small sizes, and says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from scripts_samples import ROOT, run

from captioner.errors import UserError


@pytest.fixture
def acceptance(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import gpu_acceptance

    return gpu_acceptance


@pytest.mark.slow
def test_it_runs_on_a_cpu_in_small_sizes(tmp_path: Path) -> None:
    script = f"{ROOT}/scripts/gpu_acceptance.py"
    said = run(tmp_path, script, "--small", "--device", "cpu", "--json", "table.json")
    assert said.splitlines()[0].endswith(f", torch {torch.__version__}, small sizes")
    found = json.loads((tmp_path / "table.json").read_text())
    assert found["machine"].endswith(f", torch {torch.__version__}")
    assert found["tests passed"] is True
    units = [row["unit"] for row in found["table"]]
    assert units == ["photos"] * 2 + ["captions"] * 6 + ["tokens"] * 6
    for row in found["table"]:
        assert row["rate"] > 0
        assert row["share"] > 0
        assert (row["launches"], row["memory"]) == (None, None)
        assert row["name"] in said


def test_a_cpu_is_not_measured_as_a_gpu(
    acceptance: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_acceptance.py", "--device", "cpu"])
    with pytest.raises(UserError, match="no CUDA device here: give --small"):
        acceptance.main()


def test_no_row_is_begun_when_the_time_is_over(
    acceptance: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = iter([0.0, 0.0, 59.0, 61.0])
    monkeypatch.setattr(acceptance.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(acceptance, "run_tests", lambda: True)
    measured = (acceptance.Row(name, "photos", 1.0, 0.5, None, None) for name in "abcd")
    monkeypatch.setattr(acceptance, "rows", lambda machine, sizes: measured)
    for name in ("products", "bandwidth"):
        monkeypatch.setattr(acceptance.ObservedMachine, name, lambda *_: 1.0)
    file = tmp_path / "table.json"
    options = ["--small", "--device", "cpu", "--minutes", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["gpu_acceptance.py", *options])
    assert acceptance.main() == 0
    assert capsys.readouterr().out.endswith("\nthe rest was not measured: the 1 minutes are over\n")
    assert [row["name"] for row in json.loads(file.read_text())["table"]] == ["a", "b"]


def test_the_last_of_the_works_is_observed(
    acceptance: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(acceptance, "observe", lambda device, work: seen.append(work()))
    machine = acceptance.ObservedMachine(torch.device("cpu"), 1)
    times, given = machine.seconds(lambda: "plain", lambda: "ours")
    assert (len(times), given, seen) == (2, ["plain", "ours"], ["ours"])
    assert len(machine.observed) == 1


def test_flickr8k_is_trained_on_the_features_of_the_packaged_encoder(
    acceptance: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def train_run(recipe: Any, folder: Path, device: Any) -> Path:
        assert recipe.data.images == tmp_path / "images"
        assert (recipe.encoder.weights, recipe.data.archives) == ("default", {})
        assert recipe.training.precision == "bfloat16"
        assert recipe.features.folder.parent == folder.parent  # A temporary one.
        (tmp_path / "scores.json").write_text('{"CIDEr-D": 0.5}')
        return tmp_path

    monkeypatch.setattr(acceptance, "train_run", train_run)
    scores = acceptance.train_flickr8k(tmp_path, torch.device("cpu"))
    assert scores == {"CIDEr-D": 0.5}
