"""The log as JSON lines and TensorBoard's records; whole runs are in tests/runs."""

from pathlib import Path
from unittest import mock

import pytest
from samples import Patch
from training_samples import log_of

from captioner.errors import UserError
from captioner.training import loop
from captioner.training.loop import RunLog


@pytest.mark.parametrize(("resume_at", "kept"), [(0, 0), (9, 0), (10, 1), (25, 2), (30, 3)])
def test_a_resumed_run_keeps_what_was_before(tmp_path: Path, resume_at: int, kept: int) -> None:
    RunLog(tmp_path, 5)  # Without a log, one begins.
    run_log = RunLog(tmp_path)
    for step in (10, 20, 30):
        run_log.write({"step": step, "note": "é\u2028\n"})
    RunLog(tmp_path, resume_at).write({"step": 31})
    assert [each["step"] for each in log_of(tmp_path)] == [*[10, 20, 30][:kept], 31]


@pytest.mark.parametrize("line", ['{"step": 2, "lo', "{}", "[3]", '{"step": "x"}', "\n\n"])
def test_a_line_that_was_cut_off_is_taken_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n' + line)
    RunLog(tmp_path, 5).write({"step": 6})
    assert [each["step"] for each in log_of(tmp_path)] == [1, 6]


def test_a_log_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    run_log = RunLog(tmp_path)
    (tmp_path / "log.jsonl").unlink()
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*log\.jsonl: Is a directory"):
        run_log.write({"step": 1})


def test_tensorboard_has_the_numbers_of_records(tmp_path: Path, monkeypatch: Patch) -> None:
    writer = mock.Mock()
    monkeypatch.setattr(loop, "summary_writer", lambda: writer)
    RunLog(tmp_path, 7, tensorboard=True).write({"step": 9, "loss": 0.5})
    writer.assert_called_once_with(str(tmp_path / "tensorboard"), purge_step=8)
    writer().add_scalar.assert_called_once_with("loss", 0.5, 9)
