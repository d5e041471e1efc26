from __future__ import annotations

import re
import shlex

import pytest
from scripts_samples import ROOT


class WorkBeginsError(Exception):
    """The options were accepted: work would begin."""


def test_the_command_in_the_results_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    import caption_baselines

    def begins(*arguments: object) -> None:
        raise WorkBeginsError

    monkeypatch.setattr(caption_baselines, "read_sources", begins)
    readme = (ROOT / "docs/results/index.md").read_text(encoding="utf-8")
    commands = re.findall(r"`python (scripts/caption_baselines\.py[^`]*)`", readme)
    assert len(commands) == 1
    monkeypatch.setattr("sys.argv", shlex.split(commands[0]))
    with pytest.raises(WorkBeginsError):
        caption_baselines.main()
