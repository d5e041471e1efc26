"""JSON files and counts of problems for the tests of several formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from captioner.data.source_problems import Problems


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def counts(problems: Problems) -> dict[str, int]:
    """The number of problems of each kind."""
    return {kind: len(sentences) for kind, sentences in problems.kinds.items()}
