"""Lines of text, one by one, also of a terminal or a pipe."""

import codecs
import io
import os
import sys
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from captioner.data.parallel import text_bytes
from captioner.errors import UserError
from captioner.files import as_utf8


def opened_text(path: str) -> BinaryIO:
    """A text file, .gz as well, or standard input for "-"; refuses what is not text."""
    if path == "-":
        return sys.stdin.buffer
    if not os.path.lexists(path):
        raise UserError(f"text file {path} does not exist; sentences come from standard input")
    content = text_bytes(path)
    if not content.startswith(codecs.BOM_UTF8):  # There, one line may be wrong.
        content = as_utf8(content, f"text file {path}")
    if b"\0" in content[:16]:  # A photo, or an archive.
        raise UserError(f"text file {path} is not UTF-8 text: it has NUL bytes")
    return io.BytesIO(content)


def lines_with_errors(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """The lines, without their ends, each with the reason why it cannot be read, or ""."""
    first = file.readline()
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # Of standard input.
        file = io.BytesIO(as_utf8(first + file.read(), "the text"))
        first = b""
    for number, line in enumerate(chain(filter(None, [first]), file), start=1):
        if b"\0" in line:
            yield "", "it has NUL bytes, and is not UTF-8 text"
            continue
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"), ""
        except UnicodeDecodeError as error:
            yield "", f"byte {error.start + 1} is not UTF-8 text"
