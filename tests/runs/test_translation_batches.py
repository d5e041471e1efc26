from __future__ import annotations

import os

import pytest
import torch
from run_samples import whole_batches

from captioner.data.batches import PairExample
from captioner.runs.batches import TranslationBatches
from captioner.translate import LuongConfig, TranslationLoss, TranslationModelConfig

EXAMPLES = [PairExample([4 + i % 5] * (1 + i % 7), [4 + i % 3] * (1 + i % 4)) for i in range(60)]


def test_an_epoch_has_every_pair_once_and_resumes_where_it_was() -> None:
    data = TranslationBatches(EXAMPLES, tokens=40, seed=3)
    first, second = (whole_batches(data, epoch) for epoch in (0, 1))
    assert len(first) == len(second) == data.steps(0) == data.steps(1)
    assert sum(len(batch.source) for batch in first) == 60
    assert any(
        a.source.shape != b.source.shape or not a.source.equal(b.source)
        for a, b in zip(first, second, strict=True)
    )
    for late, whole in zip(whole_batches(data, 1, 2), second[2:], strict=True):
        assert all(x.equal(y) for x, y in zip(late, whole, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")
def test_batches_loaded_ahead_are_the_same() -> None:
    here, ahead = (
        list(TranslationBatches(EXAMPLES, 40, 3, workers).batches(1, 2, 1, 2, 2))
        for workers in (0, 1)
    )
    assert [step.examples for step in here] == [step.examples for step in ahead]
    for one, other in zip(here, ahead, strict=True):
        for part, same in zip(one.micro_batches, other.micro_batches, strict=True):
            assert part.examples == same.examples
            assert all(a.equal(b) for a, b in zip(part.batch, same.batch, strict=True))


@pytest.mark.parametrize(("processes", "parts"), [(1, 3), (3, 1), (2, 2), (40, 1)])
def test_the_gradient_is_that_of_the_whole_batch(processes: int, parts: int) -> None:
    torch.manual_seed(0)
    config = TranslationModelConfig(
        luong=LuongConfig(
            cell="gru", embedding_size=4, hidden_size=6, layers=1, score="dot", dropout=0.0
        )
    )
    model = TranslationLoss(config.make(9, 9))
    data = TranslationBatches(EXAMPLES, tokens=40)
    (whole, *_) = data.batches(0, 0, 0, 1, 1)
    model.loss(whole.micro_batches[0].batch)["loss"].backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for rank in range(processes):
        (step, *_) = data.batches(0, 0, rank, processes, parts)
        assert step.examples == whole.examples
        assert len(step.micro_batches) == parts
        for part in step.micro_batches:
            loss = model.loss(part.batch)["loss"] * (part.examples / step.examples)
            loss.backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)
