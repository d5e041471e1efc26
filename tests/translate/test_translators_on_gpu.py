"""Translation models on a GPU: they agree with the CPU, train and decode."""

import copy

import pytest
import torch
from gpu_samples import DEVICE, exact_products, losses_of_ten_steps, needs_gpu, precisions
from translation_samples import CONFIGS, SIZE, make, ragged, tokens

import captioner
from captioner.decoding.constraints import Constraints
from captioner.decoding.loop import decode
from captioner.text.token_batches import TranslationBatch
from captioner.translate.model import TranslationLoss

pytestmark = needs_gpu


def batch() -> TranslationBatch:
    source, source_mask = ragged(6, 4, 1)
    targets = tokens(3, 5, seed=1)
    mask = torch.arange(5) < torch.tensor([[5], [2], [3]])
    return TranslationBatch(source, source_mask, targets.roll(1, 1), targets, mask)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_loss_its_gradient_and_a_search_are_those_of_the_cpu(name: str) -> None:
    models = [make(name)]
    models.append(copy.deepcopy(models[0]).to(DEVICE))
    searched = []
    with exact_products():
        for model, device in zip(models, (torch.device("cpu"), DEVICE), strict=True):
            memory = model.remember(batch().source.to(device), batch().source_mask)
            searched.append(
                decode(model, memory, start=1, end=2, constraints=Constraints(maximum_length=6))
            )
            loss = TranslationLoss(model.train()).loss(batch().to(device))["loss"]
            torch.autograd.backward(loss)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-3, atol=1e-4)
    for here, there in zip(*searched, strict=True):
        assert there[0].score == pytest.approx(here[0].score, abs=1e-3)
        assert there[0].tokens == here[0].tokens


@precisions
@pytest.mark.parametrize("name", CONFIGS)
def test_ten_steps_of_training(name: str, precision: str) -> None:
    torch.manual_seed(0)
    loss = TranslationLoss(CONFIGS[name].make(SIZE, SIZE)).to(DEVICE)
    first, last = losses_of_ten_steps(loss, batch(), precision)
    assert last < first


def test_the_packaged_model_gives_the_translations_of_the_cpu() -> None:
    sentences = ["Two dogs run on a beach.", "A man.", "A woman rides her bike down the street."]
    found = []
    for device in (torch.device("cpu"), DEVICE):
        model = captioner.load_translator("english_german", device, "float32")
        with exact_products():
            found.append([each.text for each in model.translate(sentences)])
    assert found[0] == found[1]
