"""Embeddings, cells and encoders against their definitions and torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from translation_samples import tokens

from captioner.schema import from_mapping
from captioner.translate import TranslationModelConfig
from captioner.translate.recurrent import FedCell, RecurrentEncoder
from captioner.translate.sequence_to_sequence import reverse_tokens

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


KINDS = ["gru", "lstm"]


def test_an_lstm_at_first_remembers() -> None:
    bias = FedCell("lstm", 2, 2, 3).known.bias
    assert bias[3:6].tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_encoder_is_torchs_sentence_by_sentence(kind: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(kind, 5, 4 if bidirectional else 8, 2, bidirectional=bidirectional)
    embedded = torch.randn(3, 6, 5)
    lengths = [4, 6, 1]
    mask = torch.arange(6) < torch.tensor(lengths).unsqueeze(1)
    outputs, final = encoder(embedded, mask)
    assert outputs.shape == (3, 6, 8)
    assert all(each.shape == (3, 2, 8) for each in final)
    for row, length in enumerate(lengths):
        expected, own = encoder.network(embedded[row, :length])
        torch.testing.assert_close(outputs[row, :length], expected)
        assert (outputs[row, length:] == 0).all()
        for one, other in zip(final, (own,) if kind == "gru" else own, strict=True):
            joined = other if not bidirectional else torch.cat([other[0::2], other[1::2]], dim=-1)
            torch.testing.assert_close(one[row], joined)  # (layers, D)


def test_a_source_is_reversed_before_its_padding() -> None:
    given = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0]])
    mask = given > 0
    assert reverse_tokens(given, mask).tolist() == [[2, 6, 5, 4], [2, 7, 0, 0]]
    assert reverse_tokens(given[:1], None).tolist() == [[2, 6, 5, 4]]
    assert reverse_tokens(tokens(1, 3), None).shape == (1, 3)
