from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from captioner.errors import UserError
from captioner.training.log import RunLog


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_records_are_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.jsonl"
    log = RunLog(path)
    log.write({"step": 1, "note": "é\u2028\n"})
    log.write({"step": 2, "loss": 0.1})
    assert records(path) == [{"step": 1, "note": "é\u2028\n"}, {"step": 2, "loss": 0.1}]
    assert path.read_text(encoding="utf-8").count("\n") == 2


@pytest.mark.parametrize(("resume_at", "kept"), [(0, 0), (9, 0), (10, 1), (25, 2), (30, 3)])
def test_a_resumed_run_keeps_what_was_before(tmp_path: Path, resume_at: int, kept: int) -> None:
    path = tmp_path / "log.jsonl"
    log = RunLog(path)
    for step in (10, 20, 30):
        log.write({"step": step, "note": "\u2028"})
    RunLog(path, resume_at).write({"step": 31})
    steps = [10, 20, 30][:kept]
    assert [record["step"] for record in records(path)] == [*steps, 31]
    assert all(record["note"] == "\u2028" for record in records(path)[:-1])


@pytest.mark.parametrize("line", ['{"step": 2, "lo', "{}", "[3]", "3", '{"step": "x"}', "", "\n\n"])
def test_a_line_that_was_cut_off_is_taken_out(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n' + line)
    RunLog(path, 5).write({"step": 6})
    assert records(path) == [{"step": 1}, {"step": 6}]


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match=r"cannot write .*file"):
        RunLog(tmp_path / "file" / "log.jsonl")
    log = RunLog(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").unlink()
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*log\.jsonl: Is a directory"):
        log.write({"step": 1})


def test_resuming_without_a_log_begins_one(tmp_path: Path) -> None:
    RunLog(tmp_path / "log.jsonl", 5).write({"step": 6})
    assert records(tmp_path / "log.jsonl") == [{"step": 6}]
