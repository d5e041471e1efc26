"""Parallel text: two files, line by line translations of each other, or a toy pair."""

import gzip
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.data.example import IN_TRAINING, OnProblem, Problems
from captioner.errors import UserError, counted, refuse_errors
from captioner.files import LARGEST_TEXT, decode_text, read_bytes

_BELOW_TEN = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_BELOW_TWENTY = (*_BELOW_TEN, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
LARGEST = 999_999


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A sentence and its translation, stripped. line: in both files, from 1."""

    source: str
    target: str
    line: int


def read_parallel(
    source: str | Path, target: str | Path, on_problem: OnProblem = "refuse"
) -> tuple[list[SentencePair], Problems]:
    """Read two UTF-8 files with as many lines, and count the pairs with an empty side."""
    problems = Problems(on_problem, f"parallel text {source} and {target}", IN_TRAINING)
    rows = read_rows([source, target], problems, needed=2)
    pairs = [SentencePair(first, second, line) for line, (first, second) in rows.items()]
    return pairs, problems


def read_rows(
    files: Sequence[str | Path], problems: Problems | None = None, needed: int = 1
) -> dict[int, tuple[str, ...]]:
    """The stripped lines of parallel files by number, from 1; each file has as many.

    needed: of how many files no line may be empty. `problems` settles the others.
    """
    problems = Problems() if problems is None else problems
    problems.source = problems.source or f"text file {files[0]}"
    columns = [[line.strip() for line in read_lines(file)] for file in files]
    for file, column in zip(files, columns, strict=True):
        if len(column) != len(columns[0]):
            counts = f"{files[0]} has {counted(len(columns[0]), 'line')} and {file} {len(column):,}"
            raise UserError(f"{counts}: line by line they should be translations of each other")
    rows = dict(enumerate(zip(*columns, strict=True), start=1))
    for line, row in list(rows.items()):
        if "" in row[:needed]:
            problems.add("empty sentence", f"{files[row.index('')]}, line {line}")
            del rows[line]
    problems.settle()
    if not rows:
        raise UserError(f"there is no sentence in {' and '.join(map(str, files[:needed]))}")
    return rows


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file, which end in LF or CRLF only; .gz is unpacked."""
    lines = decode_text(text_bytes(path), f"text file {path}").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def text_bytes(path: str | Path) -> bytes:
    """The bytes of a text file; .gz is unpacked."""
    content = read_bytes(path, "text file")
    if not f"{path}".lower().endswith(".gz"):
        return content
    with refuse_errors(f"text file {path} is not a whole gzip file"):
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(content)).read(LARGEST_TEXT + 1)
    if len(unpacked) > LARGEST_TEXT:
        raise UserError(f"text file {path} is too large: the limit is {LARGEST_TEXT:,} bytes")
    return unpacked


def number_pairs(count: int, seed: int = 0, largest: int = 9_999) -> list[SentencePair]:
    """A toy language pair: different numbers, "four thousand and seven" and "4 0 0 7"."""
    numbers = random.Random(seed).sample(range(largest + 1), count)
    numbered = enumerate(numbers, start=1)
    return [SentencePair(number_in_words(n), " ".join(str(n)), line) for line, n in numbered]


def number_in_words(number: int) -> str:
    """A number, 0 to `LARGEST`, in English: "one hundred and four thousand and twelve"."""
    if number < 20:
        return _BELOW_TWENTY[number]
    if number < 100:
        rest, words = number % 10, _TENS[number // 10 - 2]
    else:
        size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
        many, rest = divmod(number, size)
        words = f"{number_in_words(many)} {name}{' and' if rest < 100 else ''}"
    return f"{words} {number_in_words(rest)}" if rest else words.removesuffix(" and")
