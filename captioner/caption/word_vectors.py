"""Reads pretrained word vectors from a text file into a decoder's embeddings."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary


def read_word_vectors(path: str | Path, vocabulary: Vocabulary, size: int) -> tuple[Tensor, Tensor]:
    """Read the vectors of the vocabulary's ordinary words from a text file.

    Each line is a word and its numbers, separated by spaces, as in GloVe (Pennington et al. 2014)
    and word2vec's text files. Other lines, such as word2vec's first, are passed over. The first of
    a word's vectors counts.

    size: E. Returns the indices (N,) of the words, long, and their vectors (N, E), float32.
    Raises `UserError` naming the file for one that cannot be read or has no word of the vocabulary
    with E numbers, and the line for a vector of something else than finite numbers.
    """
    found: dict[int, Tensor] = {}
    try:
        # Words may contain broken UTF-8, and Unicode's line ends.
        with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                word, *numbers = line.rstrip().rsplit(" ", size)
                (index,) = vocabulary.encode([word])
                if len(numbers) == size and index != Vocabulary.unknown and index not in found:
                    found[index] = _vector(numbers, f"word vectors {path}, line {number}")
    except OSError as error:
        raise UserError(f"word vectors {path} cannot be read ({error.strerror})") from None
    if not found:
        raise UserError(
            f"word vectors {path} has none of the {len(vocabulary):,} words with {size} numbers, "
            "which decoder.embedding_size asks for"
        )
    return torch.tensor(list(found)), torch.stack(list(found.values()))


def _vector(numbers: list[str], where: str) -> Tensor:
    """The numbers (E,), float32."""
    try:
        vector = torch.tensor([float(text) for text in numbers], dtype=torch.float32)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if not vector.isfinite().all():
        raise UserError(f"{where} has a number that is not finite")
    return vector
