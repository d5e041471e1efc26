"""The acceptance of a GPU runs on a CPU in small sizes, and says so."""

import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from scripts_samples import ROOT, run


@pytest.fixture
def acceptance(import_scripts: None) -> ModuleType:
    import gpu_acceptance

    return gpu_acceptance


@pytest.mark.slow
def test_it_runs_on_a_cpu_in_small_sizes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tests marked `gpu` among it, so that they are run where there is no GPU."""
    options = ["--small", "--device", "cpu", "--minutes", "60"]
    said = run(tmp_path, f"{ROOT}/scripts/gpu_acceptance.py", *options)
    assert re.match(
        rf".*, torch {re.escape(torch.__version__)}, small sizes\ntests: passed\n", said
    )
    assert re.search(r"\d\d passed, ", capfd.readouterr().out)  # Printed by another process.
    rows = re.findall(r" ([\d,.]+) (\w+)/s +([\d.]+) +- +-$", said, re.MULTILINE)
    units = [unit for _, unit, _ in rows]
    assert units == ["photos"] + ["captions"] * 4 + ["tokens"] * 6 + ["captions"] * 2
    assert all(float(rate.replace(",", "")) > 0 for rate, _, _ in rows)
    assert re.match(r"shapes: .*exact match [01]\.\d", said.splitlines()[-1])


def test_what_fails_is_reported_and_nothing_is_begun_when_the_time_is_over(
    acceptance: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Iterator[str]:
        yield "first"
        raise RuntimeError("no Triton")

    works = [("odd", broken), *((name, partial(iter, [f"{name} is measured"])) for name in "abc")]
    clock = iter([0.0, 0.0, 30.0, 59.0, 61.0])
    monkeypatch.setattr(acceptance.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(acceptance, "run_tests", lambda device, seconds: "passed")
    monkeypatch.setattr(acceptance, "works", lambda machine, sizes: works)
    for name in ("products", "bandwidth"):
        monkeypatch.setattr(acceptance.ObservedMachine, name, lambda *_: 1.0)
    options = ["--small", "--device", "cpu", "--minutes", "1"]
    monkeypatch.setattr(sys, "argv", ["gpu_acceptance.py", *options])
    assert acceptance.main() == 1
    out = capsys.readouterr().out
    assert "\nfirst\nodd failed:\n" in out
    assert "RuntimeError: no Triton" in out
    last = "\na is measured\nb is measured\nfrom c on nothing was measured: 1 minutes are over\n"
    assert out.endswith(last)
