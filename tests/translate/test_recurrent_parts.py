"""Cells, stacks and encoders against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from translation_samples import tokens

from captioner.translate.cells import FedCell, RecurrentStack
from captioner.translate.recurrent_encoder import RecurrentEncoder, reverse_tokens

KINDS = ["gru", "lstm"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fed_size", [0, 3])
def test_a_fed_cell_is_torchs_of_both_inputs(kind: str, fed_size: int) -> None:
    torch.manual_seed(0)
    cell = FedCell(kind, 5, fed_size, 4)
    other = (nn.GRUCell if kind == "gru" else nn.LSTMCell)(5 + fed_size, 4)
    with torch.no_grad():
        parts = [cell.known.weight, *([] if cell.fed is None else [cell.fed.weight])]
        other.weight_ih.copy_(torch.cat(parts, dim=1))
        other.bias_ih.copy_(cell.known.bias)
        other.weight_hh.copy_(cell.hidden.weight)
        other.bias_hh.copy_(cell.hidden.bias)
    known, fed = torch.randn(2, 3, 5), torch.randn(2, 3, fed_size)
    state = tuple(torch.randn(2, 3, 4) for _ in range(1 if kind == "gru" else 2))
    found = cell(cell.project_input(known), fed if fed_size else None, state)
    flat = tuple(each.flatten(end_dim=1) for each in state)
    expected = other(
        torch.cat([known, fed], dim=-1).flatten(end_dim=1), flat[0] if kind == "gru" else flat
    )
    for one, own in zip(found, (expected,) if kind == "gru" else expected, strict=True):
        torch.testing.assert_close(one.flatten(end_dim=1), own)


def test_an_lstm_at_first_remembers() -> None:
    bias = FedCell("lstm", 2, 2, 3).known.bias
    assert bias[3:6].tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_is_torchs_over_rows(kind: str) -> None:
    torch.manual_seed(0)
    stack = RecurrentStack(kind, 5, 4, layers=2)
    inputs = torch.randn(2, 3, 6, 5)
    state = tuple(torch.randn(2, 3, 2, 4) for _ in range(1 if kind == "gru" else 2))
    outputs, after = stack(inputs, state)
    for source in range(2):
        for row in range(3):
            given = tuple(each[source, row] for each in state)  # (layers, H)
            expected, own = stack.network(inputs[source, row], given[0] if kind == "gru" else given)
            torch.testing.assert_close(outputs[source, row], expected)
            for one, other in zip(after, (own,) if kind == "gru" else own, strict=True):
                torch.testing.assert_close(one[source, row], other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_encoder_is_torchs_sentence_by_sentence(kind: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(kind, 5, 8, layers=2, bidirectional=bidirectional)
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


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_an_encoder_reads_under_autocast_on_any_cpu(kind: str) -> None:
    encoder = RecurrentEncoder(kind, 8, 12, layers=2, bidirectional=True)
    embedded = torch.randn(2, 5, 8)
    expected, (expected_final, *_) = encoder(embedded)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, (final, *_) = encoder(embedded)
    torch.testing.assert_close(outputs.float(), expected, rtol=0.05, atol=0.02)
    torch.testing.assert_close(final.float(), expected_final, rtol=0.05, atol=0.02)
