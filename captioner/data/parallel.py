"""Parallel text: two files whose lines are translations of each other."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.data.source_problems import IN_TRAINING, OnProblem, Problems
from captioner.errors import UserError
from captioner.files import refuse_os_errors


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation, stripped. line: in both files, from 1."""

    source: str
    target: str
    line: int


@dataclass(frozen=True)
class ParallelText:
    """At least one pair, in file order, and the problems of the skipped ones."""

    pairs: list[SentencePair]
    problems: Problems


def read_parallel(
    source: str | Path, target: str | Path, on_problem: OnProblem = "refuse"
) -> ParallelText:
    """Read two UTF-8 files with as many lines; .gz is unpacked.

    on_problem: refuse or skip a pair with an empty side.
    Raises `UserError` for a missing file, invalid UTF-8, different numbers of lines, a refused
    pair, and if no pair is left.
    """
    source, target = Path(source), Path(target)
    sides = read_lines(source), read_lines(target)
    check_line_by_line(source, sides[0], target, sides[1])
    problems = Problems(f"parallel text {source} and {target}", on_problem, IN_TRAINING)
    pairs = []
    for line, (first, second) in enumerate(zip(*sides, strict=True), start=1):
        pair = SentencePair(first.strip(), second.strip(), line)
        empty = source if not pair.source else target
        if pair.source and pair.target:
            pairs.append(pair)
        else:
            problems.add("empty sentence", f"{empty}, line {line}, is empty")
    problems.settle()
    if not pairs:
        raise UserError(f"there is no sentence in {source} and {target}")
    return ParallelText(pairs, problems)


def check_line_by_line(
    first: str | Path, first_lines: Sequence[str], second: str | Path, second_lines: Sequence[str]
) -> None:
    """Raise `UserError` if two files have different numbers of lines."""
    if len(first_lines) != len(second_lines):
        raise UserError(
            f"{first} has {len(first_lines)} lines and {second} has {len(second_lines)}: "
            "line by line they should be translations of each other"
        )


def read_lines(path: str | Path) -> list[str]:
    """The lines of a UTF-8 text file, without their ends; .gz is unpacked.

    Lines end in LF or CRLF only: Unicode's other line ends may stand inside a sentence. Raises
    `UserError` as `text_bytes` does and for invalid UTF-8.
    """
    content = text_bytes(path).removeprefix(b"\xef\xbb\xbf")
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        place = error.start - content.rfind(b"\n", 0, error.start)
        raise UserError(f"{path}, line {line}: byte {place} is not UTF-8 text") from None
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def is_gzip(path: str | Path) -> bool:
    """Whether the file name ends in .gz."""
    return Path(path).suffix.lower() == ".gz"


def text_bytes(path: str | Path) -> bytes:
    """The bytes of a text file; .gz is unpacked.

    Raises `UserError` for a file that cannot be read or unpacked.
    """
    try:
        with refuse_os_errors(f"cannot read text file {path}"):
            content = Path(path).read_bytes()
            return gzip.decompress(content) if is_gzip(path) else content
    except (EOFError, zlib.error):
        raise UserError(f"text file {path} is not a whole gzip file") from None
