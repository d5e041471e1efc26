"""The commands in the prose of the results are accepted by the scripts."""

import argparse
import re
import runpy
import shlex
import sys

import pytest
from scripts_samples import ROOT

RESULTS = " ".join((ROOT / "docs/results/index.md").read_text(encoding="utf-8").split())
COMMANDS = re.findall(r"`(?:OMP_NUM_THREADS=\d )?(?:python )?(scripts/\S+\.py [^`]+)`", RESULTS)
assert len(COMMANDS) >= 4


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_in_the_results_is_whole(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def begins(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise SystemExit(0)  # The options were accepted: work would begin.

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", begins)
    program, *options = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [program, *options])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / program), run_name="__main__")
    assert ended.value.code == 0
