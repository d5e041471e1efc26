"""Damages files at random: bytes of any file, values of JSON and YAML."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import yaml

EXTREMES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, -(2**63), 0.5, -1e308, 1e308),
    *(float("nan"), float("inf"), "", "a", "\0", "x" * 10_000, "../..", "=1+1", [], {}, [[]]),
)
"""Values of which few fields can make anything."""


def damage_file(content: bytes, suffix: str, draw: random.Random) -> bytes:
    """A file after changes: in seven of ten of JSON and YAML of values, else of bytes."""
    if suffix in (".json", ".yaml") and draw.random() < 0.7:
        if suffix == ".json":
            return json.dumps(damage_values(json.loads(content), draw)).encode()
        return yaml.safe_dump(damage_values(yaml.safe_load(content), draw)).encode()
    return damage_bytes(content, draw)


def damage_bytes(content: bytes, draw: random.Random) -> bytes:
    """The content after one to four changes."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        if not changed:
            break
        start = draw.randrange(len(changed))
        stop = min(len(changed), start + draw.choice((1, 2, 4, 8, 64, 4_096)))
        kind = draw.randrange(6)
        if kind == 0:
            changed[start] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del changed[start:]
        elif kind == 2:
            del changed[start:stop]
        elif kind == 3:
            changed[start:start] = changed[start:stop] * draw.choice((1, 2, 50))
        elif kind == 4:
            changed[start:stop] = draw.randbytes(stop - start)
        else:
            changed[start:stop] = draw.choice((b"\0", b"\xff", b"\x7f")) * (stop - start)
    return bytes(changed)


def damage_values(value: Any, draw: random.Random) -> Any:
    """A copy of a JSON value with one to three values replaced, removed, renamed or moved."""
    changed = copy.deepcopy(value)
    for _ in range(draw.randint(1, 3)):
        places = list(_places(changed))
        if not places:
            break
        parent, key = draw.choice(places)
        kind = draw.randrange(4)
        if kind < 2:
            parent[key] = copy.deepcopy(draw.choice(EXTREMES))
        elif kind == 2 or isinstance(parent, list):
            del parent[key]
        else:
            parent[f"{key}{draw.choice('sx')}"] = parent.pop(key)
    return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key in it."""
    keys = list(value) if isinstance(value, dict) else []
    for key in range(len(value)) if isinstance(value, list) else keys:
        yield value, key
        yield from _places(value[key])
