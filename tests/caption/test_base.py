"""Standardised annotation vectors, and word vectors from text files."""

import math
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from caption_samples import MEMORY, WORDS, small_decoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from captioner.caption.base import Standardisation, read_word_vectors
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary


def test_standardisation_by_hand() -> None:
    first = torch.tensor([[[1.0, 10.0], [3.0, 10.0]]])  # (B, L, D) = (1, 2, 2)
    second = torch.tensor([[[5.0, 40.0], [7.0, 40.0]]])
    found = Standardisation(2)
    found.fit([first, second])
    torch.testing.assert_close(found.mean, torch.tensor([4.0, 25.0]))
    torch.testing.assert_close(found.deviation, torch.tensor([5.0**0.5, 15.0]))
    expected = torch.tensor([[[1 / 5.0**0.5, 1.0], [3 / 5.0**0.5, 1.0]]])
    torch.testing.assert_close(found(second), expected)
    photos = torch.randn(4, 9, 5)
    photos[..., 2] = 3.0
    photos[0, 0, 2] = 3.0001  # A number that hardly differs does not become large.
    found = Standardisation(5)
    found.fit([photos])
    assert float(found(photos)[..., 2].abs().max()) < 0.01


def test_the_decoder_takes_them_as_one_without_it_takes_standardised_ones() -> None:
    decoder = small_decoder(dropout=0.0, standardise=True)
    plain = small_decoder(dropout=0.0)  # With the same weights.
    photos = 3 * torch.rand(2, 7, MEMORY).double() + 1
    words = torch.randint(WORDS, (2, 1, 5))
    as_made = decoder(decoder.remember(photos), words)
    torch.testing.assert_close(as_made, plain(plain.remember(photos), words))
    decoder.standardisation.fit([photos])
    expected = plain(plain.remember(decoder.standardisation(photos)), words)
    torch.testing.assert_close(decoder(decoder.remember(photos), words), expected)


VOCABULARY = Vocabulary(["a", "dog", "runs", "café"])  # 4 to 7


def read(folder: Path, content: bytes, size: int) -> tuple[list[int], list[list[float]]]:
    (folder / "vectors.txt").write_bytes(content)
    indices, vectors = read_word_vectors(folder / "vectors.txt", VOCABULARY, size)
    return indices.tolist(), vectors.tolist()


@pytest.mark.parametrize("header", ["", "\ufeff", "4 3\n", "\ufeff4 3\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n", " \n"])
def test_the_vectors_of_known_words_are_read(tmp_path: Path, header: str, end: str) -> None:
    lines = ["runs 1 2e0 -3.5", "cat 4 5 6", ". . . 7 8 9", "café .5 0 1", "runs 3 3 3"]
    content = header + "".join(line + end for line in lines)
    no_text = b"\xff\xfe 1 2 3\nline\xc2\x85end 1 2 3\n<end> 8 8 8\n"
    found = read(tmp_path, content.encode() + no_text, 3)
    assert found == ([6, 7], [[1.0, 2.0, -3.5], [0.5, 0.0, 1.0]])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_file_is_read_or_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    with suppress(UserError):
        ((number,),) = read(tmp_path, b"dog " + content, 1)[1]
        assert math.isfinite(number)
