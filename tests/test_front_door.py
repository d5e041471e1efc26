"""The files that meet a visitor agree with the package and with CONTRIBUTING."""

import re
from pathlib import Path
from typing import Any

import yaml

import captioner

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = ROOT / ".github/workflows"


def commands_of(workflow: str, job: str) -> list[str]:
    steps = yaml.safe_load((WORKFLOWS / workflow).read_text())["jobs"][job]["steps"]
    return [step["run"] for step in steps if "run" in step]


def test_a_pull_request_runs_the_quick_commands_of_contributing() -> None:
    block = re.search(r"```bash\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    assert block is not None
    commands = [line.partition("  #")[0].strip() for line in block[1].splitlines()]
    expected = [command for command in commands if command != "pytest -m slow"]
    assert commands_of("pull_request.yml", "tests") == expected


def test_the_citation_has_the_version_of_the_package() -> None:
    citation: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == captioner.__version__


def test_the_python_reference_has_every_public_name() -> None:
    names = re.findall(r"^::: captioner\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.M)
    assert sorted(names) == sorted(captioner.__all__)


def test_contributing_gives_the_reason_of_each_dependency() -> None:
    project = (ROOT / "pyproject.toml").read_text().partition("\ndependencies = [")[2]
    names = re.findall(r'^    "([\w-]+)', project.partition("]")[0], re.M)
    assert 5 <= len(names) <= 10
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Dependencies")[2]
    assert [
        name for name in names if not re.search(rf"^\|.*\b{name}\b.*\|.*\|$", table, re.M)
    ] == []
