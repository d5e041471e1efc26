"""Training on a GPU that is not there: nothing mixes devices or waits for the GPU.

torch's `FakeTensorMode` makes tensors without values of any device, and refuses operations on
tensors of two. Tensors on the CPU are real. What a GPU computes is tested where there is one, by
`test_*_on_gpu.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from training.training_samples import trainer_of
from translation_samples import CONFIGS, SIZE

from captioner.backends.torch_captions import make_decoder
from captioner.backends.torch_translations import make_model
from captioner.models.caption_config import CaptionDecoderConfig
from captioner.models.caption_losses import CaptioningBatch, CaptioningLoss, ObjectiveConfig
from captioner.models.translation_model import TranslationLoss, TranslationObjective
from captioner.text.token_batches import TranslationBatch, collate_sources
from captioner.training.config import TrainingConfig
from captioner.vision.encoder import VGGEncoder
from captioner.vision.encoder_config import VGGConfig

pytestmark = pytest.mark.skipif(
    not (hasattr(torch._C, "_ensureCUDADeviceGuardSet") or torch.cuda.is_available()),
    reason="fake tensors of torch before pull request 163187 ask the driver of a real GPU",
)

DEVICE = torch.device("cuda", 0)
WORDS = 20
_READ = torch.ops.aten._local_scalar_dense.default
_COPY = torch.ops.aten._to_copy.default


class Operations(TorchDispatchMode):
    """Refuses what waits for the GPU: reads of values, and copies without `non_blocking`.

    copies: whether copies are allowed, as while the model is made.
    """

    copies = True

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        fake = any(isinstance(each, FakeTensor) for each in tree_leaves((args, kwargs)))
        if not fake and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            with unset_fake_temporarily():
                return function(*args, **kwargs)
        assert function is not _READ, "a value is read"
        if function is _COPY and not self.copies:
            to = torch.device(kwargs.get("device") or args[0].device)
            assert to.type != "cpu", "values are copied from the GPU"
            waits = args[0].device.type == "cpu" and not kwargs.get("non_blocking", False)
            assert not waits, "a copy to the GPU waits"
        return function(*args, **kwargs)


@contextmanager
def fake_gpu() -> Iterator[Operations]:
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    # With cuDNN, torch asks the GPU for its version.
    with torch.backends.cudnn.flags(enabled=False), fake, Operations() as operations:
        yield operations


def make_steps(gpu: Operations, loss: nn.Module, batch: Any, patch: pytest.MonkeyPatch) -> None:
    """Two steps of training; fake tensors have no backward pass, so gradients are zeros."""

    def backward(found: Tensor) -> None:
        assert found.requires_grad
        assert (found.device, found.shape) == (DEVICE, ())
        for parameter in loss.parameters():
            parameter.grad = torch.zeros_like(parameter)

    patch.setattr(Tensor, "backward", backward)
    config = TrainingConfig(optimizer="adam")
    with TemporaryDirectory() as folder:
        trainer = trainer_of(loss, config, Path(folder))
    assert trainer.optimizer.defaults["fused"]
    gpu.copies = False
    for _ in range(2):
        trainer.step([batch._replace(share=0.6), batch._replace(share=0.4)])


@pytest.mark.parametrize(
    "fields",
    [
        {"embedding_size": 8, "hidden_size": 12, "attention_size": 8},
        {"kind": "transformer", "embedding_size": 8, "heads": 2, "inner_size": 12},
    ],
)
def test_a_captioner_is_trained(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With its encoder, on three captions of two photos."""
    tokens = torch.randint(4, WORDS, (3, 5))
    mask = torch.arange(5) < torch.tensor([[5], [4], [2]])
    photos = torch.tensor([0, 0, 1])
    batch = CaptioningBatch(torch.rand(2, 3, 64, 64), tokens, tokens, mask, photos=photos)
    with fake_gpu() as gpu:
        with torch.device(DEVICE):
            encoder = VGGEncoder(VGGConfig(name="vgg11_bn", width=0.05))
            encoder.freeze(1, batch_norm=True)
            decoder = make_decoder(
                CaptionDecoderConfig.of_kind({**fields, "memory_size": 512}), WORDS
            )
            loss = CaptioningLoss(decoder, ObjectiveConfig(), encoder)
        make_steps(gpu, loss, batch, monkeypatch)


def test_a_translator_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    source, source_mask = collate_sources([[4, 5, 6], [7], [8, 9]])
    tokens = torch.randint(4, SIZE, (3, 4))
    mask = torch.arange(4) < torch.tensor([[4], [3], [1]])
    batch = TranslationBatch(source, source_mask, tokens, tokens, mask)
    with fake_gpu() as gpu:
        with torch.device(DEVICE):
            model = make_model(CONFIGS["transformer"], SIZE, SIZE)
        loss = TranslationLoss(model, TranslationObjective(label_smoothing=0.1))
        make_steps(gpu, loss, batch, monkeypatch)
