"""Embeddings may be scaled, by every recurrent model, and a model without the field is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from captioner.schema import from_mapping
from captioner.translate import TranslationModelConfig

SIZES: dict[str, dict[str, Any]] = {
    "sequence_to_sequence": {"layers": 1},
    "bahdanau": {},
    "luong": {},
    "gnmt": {"layers": 2},
}


@pytest.mark.parametrize("kind", SIZES)
def test_embeddings_are_scaled_by_the_root_of_their_size(kind: str) -> None:
    fields = {"embedding_size": 16, "hidden_size": 16, "tie_embeddings": "all", **SIZES[kind]}
    if kind == "bahdanau":
        fields["output_size"] = 16
    tokens = torch.tensor([[4, 5, 4]])
    for scale, factor in (({}, 1.0), ({"scale_embeddings": True}, 4.0)):
        config = from_mapping(TranslationModelConfig, {kind: {**fields, **scale}}, "test")
        embeddings = config.make(8, 8).embeddings.eval()
        rows = embeddings.target_embedding.weight[tokens[0]]  # (3, E)
        assert torch.equal(embeddings.source(tokens)[0], rows * factor)
        assert torch.equal(embeddings.target(tokens)[0], rows * factor)
        vectors = torch.randn(2, 16)
        logits = embeddings.logits(vectors)  # What reads the same matrix is not scaled.
        assert torch.allclose(logits, vectors @ embeddings.target_embedding.weight.T, atol=1e-5)
