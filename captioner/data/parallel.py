"""Parallel text: two files whose lines are translations of each other, or a generated toy pair."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.data.example import IN_TRAINING, OnProblem, Problems
from captioner.errors import UserError
from captioner.files import refuse_os_errors

_BELOW_TEN = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_BELOW_TWENTY = (*_BELOW_TEN, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")

LARGEST = 999_999


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
    """
    sides = read_lines(source), read_lines(target)
    check_line_by_line(source, sides[0], target, sides[1])
    problems = Problems(on_problem, f"parallel text {source} and {target}", IN_TRAINING)
    pairs = []
    for line, (first, second) in enumerate(zip(*sides, strict=True), start=1):
        pair = SentencePair(first.strip(), second.strip(), line)
        if pair.source and pair.target:
            pairs.append(pair)
        else:
            empty = target if pair.source else source
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

    Lines end in LF or CRLF only: Unicode's other line ends may stand inside a sentence.
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
    """The bytes of a text file; .gz is unpacked."""
    try:
        with refuse_os_errors(f"cannot read text file {path}"):
            content = Path(path).read_bytes()
            return gzip.decompress(content) if is_gzip(path) else content
    except (EOFError, zlib.error):
        raise UserError(f"text file {path} is not a whole gzip file") from None


def number_pairs(count: int, seed: int = 0, largest: int = 9_999) -> list[SentencePair]:
    """A toy language pair that any model learns in seconds: numbers in words and in digits.

        four thousand and seven      4 0 0 7

    The order is the same on both sides, but words and digits do not match one to one, so a model
    has to attend. The numbers are different and random, from 0 to `largest`.
    """
    numbers = random.Random(seed).sample(range(largest + 1), count)
    return [
        SentencePair(number_in_words(number), " ".join(str(number)), line)
        for line, number in enumerate(numbers, start=1)
    ]


def number_in_words(number: int) -> str:
    """A number, 0 to `LARGEST`, in English: "one hundred and four thousand and twelve"."""
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _below_thousand(rest)
    link = "" if not rest else " and " if rest < 100 else " "
    return f"{_below_thousand(thousands)} thousand{link}{_below_thousand(rest) if rest else ''}"


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    tens, ones = divmod(rest, 10)
    words = _BELOW_TWENTY[rest] if rest < 20 else _TENS[tens - 2]
    if rest > 20 and ones:
        words += f" {_BELOW_TWENTY[ones]}"
    if not hundreds:
        return words
    return f"{_BELOW_TWENTY[hundreds]} hundred" + (f" and {words}" if rest else "")
