"""Reads pretrained word vectors from a text file into a decoder's embeddings.

The format is that of GloVe (Pennington et al. 2014) and of word2vec's text files: each line a word
and its numbers, separated by spaces; word2vec starts with a line of two numbers, the number of
words and the size of a vector.
"""

from __future__ import annotations

import codecs
from pathlib import Path

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary


def read_word_vectors(path: str | Path, vocabulary: Vocabulary, size: int) -> tuple[Tensor, Tensor]:
    """Read the vectors of the vocabulary's ordinary words from a text file.

    size: E. The first of a word's vectors counts. Of words outside the vocabulary only the length
    of the vector is checked.
    Returns the indices (N,) of the words, long, and their vectors (N, E), float32.
    Raises `UserError` naming the file, and the line, for an unreadable file, a file without
    vectors or without a word of the vocabulary, a vector of another size, and a number that is
    not finite.
    """
    found: dict[int, NDArray[numpy.float32]] = {}
    count = 0
    try:
        # In bytes: such files contain broken UTF-8, and Unicode line ends within words.
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                fields = line.strip(b" \t\r\n").split(b" ")
                is_header = number == 1 and len(fields) == 2 and size != 1
                if fields == [b""] or (is_header and all(field.isdigit() for field in fields)):
                    continue
                where, length = f"word vectors {path}, line {number}", len(fields) - 1
                # More fields may be a word with spaces, as in GloVe ("1 1/2"), unless the second
                # is a number with a point or an exponent, as in a vector.
                if length < size or (length > size and _is_fraction(fields[1])):
                    raise UserError(
                        f"{where}: {length} numbers, but the decoder's embedding_size is {size}"
                    )
                count += 1
                (index,) = vocabulary.encode([fields[0].decode("utf-8", "replace")])
                if length == size and index != Vocabulary.unknown and index not in found:
                    found[index] = _vector(fields[1:], where)
    except OSError as error:
        raise UserError(f"word vectors {path} cannot be read ({error.strerror})") from None
    if count == 0:
        raise UserError(f"word vectors {path} holds no vectors")
    if not found:
        raise UserError(f"word vectors {path} has none of the {len(vocabulary):,} words")
    return torch.tensor(list(found)), torch.from_numpy(numpy.stack(list(found.values())))


def _is_fraction(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return b"." in text or b"e" in text.lower()


def _vector(fields: list[bytes], where: str) -> NDArray[numpy.float32]:
    """The numbers (E,), float32."""
    try:
        with numpy.errstate(over="ignore"):
            vector = numpy.array([float(text) for text in fields]).astype(numpy.float32)
    except ValueError as error:
        raise UserError(f"{where} has something else than numbers: {error}") from None
    if not numpy.isfinite(vector).all():
        raise UserError(f"{where} has a number that is not finite")
    return vector
