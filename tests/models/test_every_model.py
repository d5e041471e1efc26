"""What holds for every translation model, on a CPU and on a GPU."""

import pytest
import torch
from gpu_samples import DEVICE, exact_products, losses_of_ten_steps, needs_gpu, precisions
from translation_samples import CONFIGS, SIZE, make, ragged, tokens

from captioner.decoding.loop import decode
from captioner.decoding.options import AnySearch
from captioner.decoding.protocol import TeacherForced, select_rows
from captioner.decoding.rules import Constraints
from captioner.models.translation_model import TranslationLoss, TranslationObjective
from captioner.text.token_batches import TranslationBatch, decoder_inputs

every_model = pytest.mark.parametrize("name", list(CONFIGS))


def batch() -> TranslationBatch:
    source, source_mask = ragged(6, 4, 1)
    targets = tokens(3, 7, seed=3)
    mask = torch.arange(7) < torch.tensor([[7], [2], [3]])
    return TranslationBatch(source, source_mask, decoder_inputs(targets), targets, mask)


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
        inside, outside = together.weights[row].tensor_split([alone.weights.shape[-1]], dim=-1)
        assert_near(inside, alone.weights[0])
        assert (outside == 0).all()
        assert (inside >= 0).all()
        totals = inside.sum(dim=-1)
        assert_near(totals.clamp(min=1) if "local-p" in name else totals, torch.ones_like(totals))


@every_model
def test_every_weight_is_trained_and_saved_once(name: str) -> None:
    model = make(name).train()
    tensors = model.state_dict()
    assert len({each.data_ptr() for each in tensors.values()}) == len(tensors)
    TranslationLoss(model).loss(batch())["loss"].backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert bool(parameter.grad.abs().sum() > 0) or "key_projection.bias" in parameter_name


def test_the_loss_is_a_mean_over_tokens() -> None:
    model, pairs = make("dot"), batch()
    logits = model(model.remember(*pairs[:2]), pairs.inputs.unsqueeze(1)).logits[:, 0]
    terms = logits.log_softmax(dim=-1)
    plain = -terms.gather(-1, pairs.targets.unsqueeze(-1)).squeeze(-1)[pairs.mask]
    torch.testing.assert_close(TranslationLoss(model).loss(pairs)["loss"], plain.mean())
    smoothed = TranslationLoss(model, TranslationObjective(label_smoothing=0.1)).loss(pairs)
    expected = 0.9 * plain.mean() - 0.1 * terms[pairs.mask].mean()
    torch.testing.assert_close(smoothed["loss"], expected)
    torch.testing.assert_close(smoothed["cross_entropy"], plain.mean())


@every_model
def test_it_is_trained_and_searched_in_bfloat16(name: str) -> None:
    model = make(name).train()
    plain = TranslationLoss(model).loss(batch())["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        loss = TranslationLoss(model).loss(batch())["loss"]
        loss.backward()
        memory = model.remember(*batch()[:2])
        found = decode(
            model, memory, start=1, end=2, constraints=Constraints(AnySearch(maximum_length=4))
        )
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(plain.item(), rel=0.05)
    assert len(found) == 3


@needs_gpu[0]
@needs_gpu[1]
@every_model
@precisions
def test_the_loss_its_gradient_and_a_search_are_those_of_the_cpu(name: str, precision: str) -> None:
    models, limit = [make(name), make(name).to(DEVICE)], Constraints(AnySearch(maximum_length=6))
    searched = []
    with exact_products():
        for model, device in zip(models, (torch.device("cpu"), DEVICE), strict=True):
            memory = model.remember(batch().source.to(device), batch().source_mask)
            searched.append(decode(model, memory, start=1, end=2, constraints=limit))
            TranslationLoss(model.train()).loss(batch().to(device))["loss"].backward()
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-3, atol=1e-4)
    for here, there in zip(*searched, strict=True):
        assert there[0].score == pytest.approx(here[0].score, abs=1e-3)
        assert there[0].tokens == here[0].tokens
    first, last = losses_of_ten_steps(TranslationLoss(models[1]), batch(), precision)
    assert last < first
