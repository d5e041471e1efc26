"""Parallel text: two files, line by line the same sentences in two languages."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.data.source_problems import OnProblem, Problems
from captioner.errors import UserError


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation, as written, without the white space around them.

    line: in both files, from 1.
    """

    source: str
    target: str
    line: int


@dataclass(frozen=True)
class ParallelText:
    """What was read from two files.

    pairs: at least one, in the order of the files. problems: what was left out; empty unless the
    reader was told to skip.
    """

    pairs: list[SentencePair]
    problems: Problems


def read_parallel(
    source: str | Path, target: str | Path, on_problem: OnProblem = "refuse"
) -> ParallelText:
    """Read two files of as many lines, in UTF-8; those whose names end in .gz are unpacked.

    on_problem: `refuse` a pair of which a side is empty, or `skip` it and count it.
    Raises `UserError`, in one sentence that names file and line, for a file that is missing or no
    UTF-8, for different numbers of lines, for an empty side, and where nothing is left.
    """
    source, target = Path(source), Path(target)
    sides = read_lines(source), read_lines(target)
    check_line_by_line(source, sides[0], target, sides[1])
    problems = Problems(f"parallel text {source} and {target}", on_problem)
    pairs = []
    for line, (first, second) in enumerate(zip(*sides, strict=True), start=1):
        pair = SentencePair(first.strip(), second.strip(), line)
        empty = source if not pair.source else target
        if pair.source and pair.target:
            pairs.append(pair)
        else:
            problems.add("empty sentence", f"line {line}", f"{empty}, line {line}, is empty")
    problems.settle()
    if not pairs:
        raise UserError(f"there is no sentence in {source} and {target}")
    return ParallelText(pairs, problems)


def check_line_by_line(
    first: str | Path, first_lines: Sequence[str], second: str | Path, second_lines: Sequence[str]
) -> None:
    """Raise `UserError` naming two files that have different numbers of lines."""
    if len(first_lines) != len(second_lines):
        raise UserError(
            f"{first} has {len(first_lines)} lines and {second} has {len(second_lines)}: "
            "line by line they should be translations of each other"
        )


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file in UTF-8, without their ends; one that ends in .gz is unpacked.

    Only line feeds end lines, with or without a carriage return before them: other signs that
    Unicode takes for line ends may stand inside a sentence. Raises `UserError` that names the file,
    and the line that is not UTF-8.
    """
    lines = text_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(line.decode("utf-8").removesuffix("\r"))
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: byte {error.start + 1} is not UTF-8 text"
            ) from None
    return found


def is_gzip(path: str | Path) -> bool:
    """Whether a text file is one to be unpacked, by the end of its name."""
    return Path(path).suffix.lower() == ".gz"


def text_bytes(path: str | Path) -> bytes:
    """What is in a text file; one that ends in .gz is unpacked.

    Raises `UserError` that names the file, for one that cannot be read or unpacked.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        if is_gzip(path):
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise UserError(f"text file {path} does not exist") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"text file {path} is not a whole gzip file") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read text file {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
    return content
