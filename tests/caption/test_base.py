"""Standardised annotation vectors, and word vectors from text files."""

import torch
from caption_samples import MEMORY, WORDS, small_decoder

from captioner.caption.base import Standardisation


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
