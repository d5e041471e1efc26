"""Reads pretrained word vectors from a text file into a decoder's embeddings.

The format is that of GloVe (Pennington et al. 2014) and of word2vec's text files: each line a word
and its numbers, separated by spaces; word2vec starts with a line of two numbers, the number of
words and the size of a vector.
"""

from __future__ import annotations

import codecs
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from captioner.caption.caption_decoder import CaptionDecoder
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class WordVectors:
    """Vectors of the vocabulary words in a file.

    indices: (N,) long, of the words. vectors: (N, E) float32.
    """

    indices: Tensor
    vectors: Tensor

    def put_into(self, decoder: CaptionDecoder, freeze: bool = False) -> None:
        """Copy the vectors into the decoder's embeddings.

        freeze: train no embedding, not even those without a vector.
        """
        embedding = decoder.embedding.weight
        with torch.no_grad():
            embedding[self.indices.to(embedding.device)] = self.vectors.to(embedding)
        embedding.requires_grad_(not freeze)


def read_word_vectors(path: str | Path, vocabulary: Vocabulary, size: int) -> WordVectors:
    """Read the vectors of the vocabulary's ordinary words from a text file.

    size: E. The first of a word's vectors counts. Of words outside the vocabulary only the length
    of the vector is checked.
    Raises `UserError` naming the file, and the line, for an unreadable file, a file without
    vectors or without a word of the vocabulary, a vector of another size, and a number that is
    not finite.
    """
    found: dict[int, list[float]] = {}
    count = 0
    try:
        # In bytes: such files contain broken UTF-8, and Unicode line ends within words.
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                fields = line.strip(b" \t\r\n").split(b" ")
                if fields == [b""] or (number == 1 and _is_header(fields, path, size)):
                    continue
                where = f"word vectors {path}, line {number}"
                _check_length(fields, where, size)
                count += 1
                if len(fields) > size + 1:
                    continue  # A word with spaces, which no vocabulary has.
                (index,) = vocabulary.encode([fields[0].decode("utf-8", "replace")])
                if index != Vocabulary.unknown and index not in found:
                    found[index] = [_number(text, where) for text in fields[1:]]
    except OSError as error:
        raise UserError(f"word vectors {path} cannot be read ({error.strerror})") from None
    if count == 0:
        raise UserError(f"word vectors {path} holds no vectors")
    if not found:
        raise UserError(f"word vectors {path} has none of the {len(vocabulary):,} words")
    vectors = torch.tensor(list(found.values()), dtype=torch.float32)  # (N, E)
    return WordVectors(torch.tensor(list(found)), vectors)


def _is_header(fields: list[bytes], path: str | Path, size: int) -> bool:
    """Whether a first line is word2vec's header: number of words, size of a vector.

    Raises `UserError` for another size than `size`.
    """
    if len(fields) != 2 or not all(field.isdigit() for field in fields) or size == 1:
        return False
    if int(fields[1]) != size:
        raise UserError(
            f"word vectors {path} have {int(fields[1])} numbers, "
            f"but the decoder's embedding_size is {size}"
        )
    return True


def _check_length(fields: list[bytes], where: str, size: int) -> None:
    """Raise `UserError` unless a line is a word, perhaps with spaces, and `size` numbers."""
    numbers = len(fields) - 1
    # More fields may be a word with spaces, as in GloVe ("1 1/2"), unless the second field is a
    # number with a point or an exponent, as in a vector.
    if numbers < size or (numbers > size and _is_fraction(fields[1])):
        raise UserError(f"{where}: {numbers} numbers, but the decoder's embedding_size is {size}")


def _is_fraction(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return b"." in text or b"e" in text.lower()


def _number(text: bytes, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        shown = text.decode("utf-8", "replace")
        raise UserError(f"{where}: {shown[:40]!r} is not a number") from None
    if not math.isfinite(value) or abs(value) > torch.finfo(torch.float32).max:
        raise UserError(f"{where}: {value} is not a finite number")
    return value
