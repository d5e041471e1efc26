"""Benchmarks and the acceptance of a GPU run in small sizes; what they time is right."""

import re
from pathlib import Path

import pytest
import torch
from scripts_samples import ROOT, run


@pytest.mark.slow
def test_rows_are_measured_against_their_reference(tmp_path: Path) -> None:
    options = ["--repeat", "1", "--only", "decoding-1", "photo", "large"]
    *_, beam, photo, large = run(tmp_path, f"{ROOT}/scripts/benchmark.py", *options).splitlines()
    assert "1/1 the same" in beam
    assert photo.endswith(("0 captions changed", "1 captions changed"))  # In bfloat16.
    assert large.startswith("photo of 12 megapixels")


@pytest.fixture
def no_graphs() -> None:
    """In place of conftest's: the script measures graphs, too."""


@pytest.mark.slow
def test_the_acceptance_of_a_gpu_runs_on_a_cpu(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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
