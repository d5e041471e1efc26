"""Standardised annotation vectors, and word vectors from text files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from gradient_samples import MEMORY, WORDS, small_decoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from captioner.caption.base import Standardisation, read_word_vectors
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary


def fitted(*batches: torch.Tensor) -> Standardisation:
    found = Standardisation(batches[0].shape[-1])
    found.fit(batches)
    return found


def test_by_hand() -> None:
    first = torch.tensor([[[1.0, 10.0], [3.0, 10.0]]])  # (B, L, D) = (1, 2, 2)
    second = torch.tensor([[[5.0, 40.0], [7.0, 40.0]]])
    found = fitted(first, second)
    torch.testing.assert_close(found.mean, torch.tensor([4.0, 25.0]))
    torch.testing.assert_close(found.deviation, torch.tensor([5.0**0.5, 15.0]))
    torch.testing.assert_close(
        found(second), torch.tensor([[[1 / 5.0**0.5, 1.0], [3 / 5.0**0.5, 1.0]]])
    )


def test_a_number_that_never_differs_does_not_become_large() -> None:
    photos = torch.randn(4, 9, 5)
    photos[..., 2] = 3.0
    photos[0, 0, 2] = 3.0001
    found = fitted(photos)
    assert float(found(photos)[..., 2].abs().max()) < 0.01


def test_the_decoder_takes_them_as_one_without_it_takes_standardised_ones() -> None:
    decoder = small_decoder(dropout=0.0, standardise=True)
    plain = small_decoder(dropout=0.0)  # With the same weights.
    photos = 3 * torch.rand(2, 7, MEMORY).double() + 1
    words = torch.randint(WORDS, (2, 1, 5))
    as_made = decoder(decoder.remember(photos), words).logits
    torch.testing.assert_close(as_made, plain(plain.remember(photos), words).logits)
    decoder.standardisation.fit([photos])
    expected = plain(plain.remember(decoder.standardisation(photos)), words).logits
    found = decoder(decoder.remember(photos), words).logits
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, as_made)


VOCABULARY = Vocabulary(["a", "dog", "runs", "café"])  # 4 to 7


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "vectors.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("header", ["", "\ufeff", "4 3\n", "\ufeff4 3\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n", " \n"])
def test_the_vectors_of_known_words_are_read(tmp_path: Path, header: str, end: str) -> None:
    lines = ["runs 1 2e0 -3.5", "cat 4 5 6", ". . . 7 8 9", "café .5 0 1", "runs 3 3 3"]
    indices, vectors = read_word_vectors(
        write(tmp_path, header + "".join(line + end for line in lines)), VOCABULARY, 3
    )
    assert indices.tolist() == [6, 7]
    assert vectors.tolist() == [[1.0, 2.0, -3.5], [0.5, 0.0, 1.0]]


def test_words_that_are_not_text_are_passed_over(tmp_path: Path) -> None:
    content = b"\xff\xfe 1 2\nline\xc2\x85end 1 2\n<end> 8 8\ndog 3 4\n"
    indices, _ = read_word_vectors(write(tmp_path, content), VOCABULARY, 2)
    assert indices.tolist() == [5]


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_file_is_read_or_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    try:
        indices, vectors = read_word_vectors(path, VOCABULARY, 1)
    except UserError:
        with pytest.raises(UserError, match=r"vectors\.txt"):
            read_word_vectors(path, VOCABULARY, 1)
        return
    assert vectors.shape == (len(indices), 1)
    assert math.isfinite(float(vectors.sum()))
