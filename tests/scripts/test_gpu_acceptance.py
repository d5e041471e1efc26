"""The acceptance of a GPU runs on a CPU in small sizes, and says so."""

import re
from pathlib import Path

import pytest
import torch
from scripts_samples import ROOT, run


@pytest.mark.slow
def test_it_runs_on_a_cpu_in_small_sizes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tests marked `gpu` among it, so that they are run where there is no GPU."""
    options = ["--small", "--device", "cpu", "--minutes", "60"]
    said = run(tmp_path, f"{ROOT}/scripts/gpu_acceptance.py", *options)
    assert re.match(
        rf".*, torch {re.escape(torch.__version__)}, small sizes\ntests: passed\n", said
    )
    assert re.search(r"\d\d passed, ", capfd.readouterr().out)  # Printed by another process.
    rows = re.findall(r" ([\d,.]+) (\w+)/s +([\d.]+)$", said, re.MULTILINE)
    assert [unit for _, unit, _ in rows] == ["photos"] + ["captions"] * 4
    assert [row for row in rows if float(row[0].replace(",", "")) <= 0] == []
    assert "multi30k_en_de_gnmt" in said
    assert "failed" not in said
    assert re.match(r"shapes: .*exact match [01]\.\d", said.splitlines()[-1])
