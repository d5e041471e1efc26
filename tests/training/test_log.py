"""The log as JSON lines and TensorBoard's records; whole runs are in tests/runs."""

from pathlib import Path

import pytest
from training_samples import log_of

from captioner.errors import UserError
from captioner.training.log import RunLog


def test_records_are_lines_of_json(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "new")
    log.write({"step": 1, "note": "é\u2028\n"})
    log.write({"step": 2, "loss": 0.1})
    assert log_of(tmp_path / "new") == [{"step": 1, "note": "é\u2028\n"}, {"step": 2, "loss": 0.1}]


@pytest.mark.parametrize(("resume_at", "kept"), [(0, 0), (9, 0), (10, 1), (25, 2), (30, 3)])
def test_a_resumed_run_keeps_what_was_before(tmp_path: Path, resume_at: int, kept: int) -> None:
    RunLog(tmp_path, 5)  # Without a log, one begins.
    log = RunLog(tmp_path)
    for step in (10, 20, 30):
        log.write({"step": step, "note": "\u2028"})
    RunLog(tmp_path, resume_at).write({"step": 31})
    assert [each["step"] for each in log_of(tmp_path)] == [*[10, 20, 30][:kept], 31]


@pytest.mark.parametrize("line", ['{"step": 2, "lo', "{}", "[3]", '{"step": "x"}', "\n\n"])
def test_a_line_that_was_cut_off_is_taken_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n' + line)
    RunLog(tmp_path, 5).write({"step": 6})
    assert [each["step"] for each in log_of(tmp_path)] == [1, 6]


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    (tmp_path / "log.jsonl").unlink()
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*log\.jsonl: Is a directory"):
        log.write({"step": 1})
