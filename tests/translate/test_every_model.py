"""What holds for every translation model."""

import pytest
import torch
from translation_samples import CONFIGS, SIZE, make, ragged, tokens

from captioner.decoding.constraints import Constraints
from captioner.decoding.loop import decode
from captioner.decoding.protocol import TeacherForced, select_rows
from captioner.text.token_batches import TranslationBatch
from captioner.translate.model import TranslationLoss, TranslationObjective

every_model = pytest.mark.parametrize("name", list(CONFIGS))


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@every_model
def test_steps_equal_teacher_forcing(name: str) -> None:
    """So no step sees a later token. Selected rows go on as they would have."""
    model = make(name)
    memory = model.remember(*ragged(6, 4, 1))
    fed = tokens(3, 2, 5)
    forced = model(memory, fed)
    assert forced.logits.shape == (3, 2, 5, SIZE)
    assert forced.weights.shape == (3, 2, 5, memory.length)
    state = select_rows(model.start(memory), torch.zeros(3, 2, dtype=torch.long))
    for time in range(5):
        if time == 3:
            rows = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 1]])
            state, fed = select_rows((state, fed), rows)
            forced = TeacherForced(*(select_rows(each, rows) for each in forced[:2]))
        step = model.step(fed[:, :, time], state)
        state = step.state
        assert_near(step.logits, forced.logits[:, :, time])
        assert_near(step.weights, forced.weights[:, :, time])


@every_model
def test_a_batch_equals_its_sentences_one_at_a_time(name: str) -> None:
    """So padding has no effect, and weights are of real positions."""
    model = make(name)
    source, mask = ragged(6, 4, 1)
    fed = tokens(3, 1, 5)
    together = model(model.remember(source, mask), fed)
    for row, length in enumerate((6, 4, 1)):
        alone = model(model.remember(source[row : row + 1, :length]), fed[row : row + 1])
        assert_near(together.logits[row], alone.logits[0])
        weights = together.weights[row]
        reach = alone.weights.shape[-1]
        assert_near(weights[..., :reach], alone.weights[0])
        assert (weights[..., reach:] == 0).all()
        assert (weights >= 0).all()
        totals = weights.sum(dim=-1)
        if "local-p" in name:
            assert (totals <= 1 + 1e-6).all()
        else:
            torch.testing.assert_close(totals, torch.ones_like(totals))


@every_model
def test_every_weight_is_trained_and_saved_once(name: str) -> None:
    model = make(name).train()
    tensors = model.state_dict()
    assert len({each.data_ptr() for each in tensors.values()}) == len(tensors)
    source, mask = ragged(6, 4)
    targets = tokens(2, 7, seed=3)
    inputs = torch.cat([torch.ones(2, 1, dtype=torch.long), targets[:, :-1]], dim=1)
    batch = TranslationBatch(source, mask, inputs, targets, torch.ones(2, 7, dtype=torch.bool))
    TranslationLoss(model).loss(batch)["loss"].backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert bool(parameter.grad.abs().sum() > 0) or "key_projection.bias" in parameter_name


def test_the_loss_is_a_mean_over_tokens() -> None:
    model = make("dot")
    source, mask = ragged(4, 5)
    inputs, targets = tokens(2, 3, seed=1), tokens(2, 3, seed=2)
    seen = torch.tensor([[True, True, True], [True, False, False]])
    logits = model(model.remember(source, mask), inputs.unsqueeze(1)).logits[:, 0]
    terms = logits.log_softmax(dim=-1)
    plain = -terms.gather(-1, targets.unsqueeze(-1)).squeeze(-1)[seen]
    batch = TranslationBatch(source, mask, inputs, targets, seen)
    torch.testing.assert_close(TranslationLoss(model).loss(batch)["loss"], plain.mean())
    smoothed = TranslationLoss(model, TranslationObjective(label_smoothing=0.1)).loss(batch)
    expected = 0.9 * plain.mean() - 0.1 * terms[seen].mean()
    torch.testing.assert_close(smoothed["loss"], expected)
    torch.testing.assert_close(smoothed["cross_entropy"], plain.mean())


@every_model
def test_it_is_trained_and_searched_in_bfloat16(name: str) -> None:
    model = make(name).train()
    source, mask = ragged(6, 4)
    given = tokens(2, 7)
    batch = TranslationBatch(source, mask, given, given, torch.ones(2, 7, dtype=torch.bool))
    plain = TranslationLoss(model).loss(batch)["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        loss = TranslationLoss(model).loss(batch)["loss"]
        loss.backward()
        memory = model.remember(source, mask)
        found = decode(model, memory, start=1, end=2, constraints=Constraints(maximum_length=4))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(plain.item(), rel=0.05)
    assert len(found) == 2
