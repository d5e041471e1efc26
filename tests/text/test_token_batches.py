"""Tokens side by side, padded, and moved to where a model is."""

from __future__ import annotations

import torch

from captioner.text.token_batches import TranslationBatch, collate_sources


def test_a_batch_moves_but_for_the_mask_of_its_sources() -> None:
    source, mask = collate_sources([[4, 5], [6]])
    batch = TranslationBatch(source, mask, source, source, mask)
    assert all(torch.equal(here, there) for here, there in zip(batch, batch.to("cpu"), strict=True))
    moved = batch.to("meta")
    assert isinstance(moved, TranslationBatch)
    places = [tensor.device.type for tensor in moved]
    assert places == ["meta", "cpu", "meta", "meta", "meta"]  # Lengths are read from the mask.
