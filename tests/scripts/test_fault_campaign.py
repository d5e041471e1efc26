from __future__ import annotations

import json
import os
import random
import signal
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts_samples import ROOT, run


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "fault_campaign"))
    return SimpleNamespace(damage=import_module("damage"), worker=import_module("worker"))


def test_damage_follows_from_the_seed_and_leaves_the_original(scripts: Any) -> None:
    content, value = bytes(range(256)) * 8, {"a": [1, {"b": 2}], "c": "d"}
    before = json.dumps(value)
    for change, good in (
        (scripts.damage.damage_bytes, content),
        (scripts.damage.damage_values, value),
    ):
        first, second = ([repr(change(good, random.Random(n))) for n in range(50)] for _ in "ab")
        assert first == second
        assert sum(each != repr(good) for each in first) > 40
        assert len(set(first)) > 30
    assert json.dumps(value) == before
    assert scripts.damage.damage_bytes(b"", random.Random(0)) == b""
    assert scripts.damage.damage_values({}, random.Random(0)) == {}


@pytest.mark.slow
def test_faults_are_told_apart(scripts: Any, tmp_path: Path, monkeypatch: Any) -> None:
    module = scripts.worker
    good = ROOT / "configs" / "shapes_soft.yaml"
    with closing(module.Worker()) as worker:
        assert worker.do(module.config, tmp_path / "absent")[0] == "refused"
        assert worker.do(module.config, good)[0] == "accepted"
        assert worker.do(module.data, good)[0] == "traces"
        worker.process.kill()
        worker.process.join()
        assert worker.do(module.config, good)[0] == "crashes"
        assert worker.do(module.config, good)[0] == "accepted"
        os.kill(worker.process.pid, signal.SIGSTOP)
        monkeypatch.setattr(module, "PATIENCE", 0.1)
        assert worker.do(module.config, good)[0] == "hangs"


@pytest.mark.slow
def test_a_short_campaign_finds_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    printed = run(tmp_path, str(ROOT / "scripts/fault_campaign/run.py"), "--seconds", "5")
    rows = [line.split() for line in printed.splitlines()[1:-1]]
    assert len(rows) == 6
    for row in rows:
        assert int(row[-6].replace(",", "")) > 0
        assert row[-4:] == ["0"] * 4
