"""What the formats' tests share: files of JSON, a field of them changed, counts of problems."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from captioner.data.source_problems import Problems


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def with_field(document: Any, where: str, index: int, name: str, value: Any) -> Any:
    """The document with another value of a field of a record; None takes the field away."""
    result = copy.deepcopy(document)
    result[where][index].pop(name, None)
    if value is not None:
        result[where][index][name] = value
    return result


def counts(problems: Problems) -> dict[str, int]:
    """The number of problems of each kind."""
    return {kind: len(sentences) for kind, sentences in problems.kinds.items()}
