"""The acceptance of a GPU runs on a CPU in small sizes, and says so."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
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
def test_it_runs_on_a_cpu_in_small_sizes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tests marked `gpu` among it, so that they are run where there is no GPU."""
    options = ["--small", "--device", "cpu", "--minutes", "60", "--json", "table.json"]
    said = run(tmp_path, f"{ROOT}/scripts/gpu_acceptance.py", *options)
    assert said.splitlines()[0].endswith(f", torch {torch.__version__}, small sizes")
    found = json.loads((tmp_path / "table.json").read_text())
    assert found["machine"].endswith(f", torch {torch.__version__}")
    assert (found["tests"], found["failed"]) == ("passed", [])
    assert re.search(r"\d\d passed, ", capfd.readouterr().out)  # Printed by another process.
    assert len(found["speeds"]) >= 2
    *rows, shapes = found["results"]
    units = [row["unit"] for row in rows]
    assert units == ["photos"] * 2 + ["captions"] * 4 + ["tokens"] * 6 + ["captions"] * 2
    for row in rows:
        assert row["rate"] > 0
        assert row["share"] > 0
        assert (row["launches"], row["memory"]) == (None, None)
        assert row["name"] in said
    assert 0 <= shapes["scores"]["exact match"] <= 1


def test_a_cpu_is_not_measured_as_a_gpu(
    acceptance: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_acceptance.py", "--device", "cpu"])
    with pytest.raises(UserError, match="no CUDA device here: give --small"):
        acceptance.main()


def small_run(
    acceptance: ModuleType, monkeypatch: pytest.MonkeyPatch, file: Path, works: Any
) -> Callable[[], Any]:
    """The program with one minute, passed tests and these works."""
    monkeypatch.setattr(acceptance, "run_tests", lambda device, seconds: "passed")
    monkeypatch.setattr(acceptance, "works", lambda machine, sizes, flickr8k: works)
    for name in ("products", "bandwidth"):
        monkeypatch.setattr(acceptance.ObservedMachine, name, lambda *_: 1.0)
    options = ["--small", "--device", "cpu", "--minutes", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["gpu_acceptance.py", *options])
    main: Callable[[], Any] = acceptance.main
    return main


def test_nothing_is_begun_when_the_time_is_over(
    acceptance: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = iter([0.0, 0.0, 59.0, 61.0])
    monkeypatch.setattr(acceptance.time, "perf_counter", lambda: next(clock))
    learned = acceptance.Learned
    works = [(name, partial(lambda name: iter([learned(name, {})]), name)) for name in "abcd"]
    file = tmp_path / "table.json"
    assert small_run(acceptance, monkeypatch, file, works)() == 0
    last = "\nfrom c on nothing was measured: 1 minutes are over\n"
    assert capsys.readouterr().out.endswith(last)
    assert [each["name"] for each in json.loads(file.read_text())["results"]] == ["a", "b"]


def test_what_fails_is_reported_and_the_rest_goes_on(
    acceptance: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "table.json"
    kept: list[Any] = []

    def broken() -> Iterator[Any]:
        yield acceptance.Learned("first", {})
        raise RuntimeError("no Triton")

    def sound() -> Iterator[Any]:
        kept.append(json.loads(file.read_text()))
        yield acceptance.Learned("second", {"exact match": 0.5})

    assert small_run(acceptance, monkeypatch, file, [("odd", broken), ("even", sound)])() == 1
    out = capsys.readouterr().out
    assert "odd failed:\n" in out
    assert "RuntimeError: no Triton" in out
    assert out.endswith("second: exact match 0.500\n")
    assert [each["name"] for each in kept[0]["results"]] == ["first"]
    found = json.loads(file.read_text())
    assert ([each["name"] for each in found["results"]], found["failed"]) == (
        ["first", "second"],
        ["odd"],
    )


@pytest.mark.slow
def test_tests_are_stopped_when_their_time_is_over(
    acceptance: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tests").mkdir()
    file = tmp_path / "tests" / "test_slow.py"
    monkeypatch.setattr(acceptance, "ROOT", tmp_path)
    found = []
    for body, seconds in (("pass", 60), ("assert False", 60), ("time.sleep(60)", 0.5)):
        file.write_text(f"import time, pytest\n@pytest.mark.gpu\ndef test_it():\n    {body}\n")
        found.append(acceptance.run_tests(torch.device("cpu"), seconds))
    assert found == ["passed", "failed", "not finished"]


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

    monkeypatch.setattr(acceptance, "has_bfloat16", lambda device: True)
    monkeypatch.setattr(acceptance, "train_run", train_run)
    (learned,) = acceptance.learn_flickr8k(tmp_path, torch.device("cpu"))
    assert str(learned) == "Flickr8k: CIDEr-D 0.500"
