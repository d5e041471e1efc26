"""Training, decoding and encoding on a GPU that is not there: nothing mixes devices or waits.

The reads of values that are left, with their reasons:
- a step of decoding reads two flags at once: whether to go on, and whether the model gave NaN;
- decoding fetches all hypotheses after its last step, by two transfers;
- rmsprop in float16 reads whether the gradient overflowed, as `GradScaler` does for optimisers that
  are not fused;
- self-critical training decodes in its step, since rewards are computed from words on the CPU.

The recurrence with a backward pass of its own (`captioner/cpu`) is for tensors on a CPU alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fake_gpu import DEVICE, EndOfAnswers, Operations, fake_gpu
from PIL import Image
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from translate.translation_samples import CONFIGS, SIZE

import captioner
from captioner.caption import (
    CaptionDecoder,
    CaptioningBatch,
    CaptioningLoss,
    HardAttentionLoss,
    ObjectiveConfig,
    SelfCriticalConfig,
    SelfCriticalLoss,
)
from captioner.caption.decoder import DecoderState
from captioner.caption.decoders import decoder_config
from captioner.caption.decoders import make_decoder as make_caption_decoder
from captioner.caption.standardisation import Standardisation
from captioner.decoding import BeamSearch, Constraints, Sampling, SearchOptions, Strategy, decode
from captioner.decoding.protocol import Decoder
from captioner.errors import UserError
from captioner.runs.feature_extraction import encode
from captioner.text.token_batches import TranslationBatch, collate_sources
from captioner.training import Engine, Part, Step, TrainingConfig
from captioner.training.optimizers import make_optimizer
from captioner.training.step import Stepper
from captioner.translate import TranslationLoss, TranslationObjective
from captioner.vision.blur import blur_places, blurred
from captioner.vision.vgg import VGGConfig, VGGEncoder

pytestmark = pytest.mark.skipif(
    not (hasattr(torch._C, "_ensureCUDADeviceGuardSet") or torch.cuda.is_available()),
    reason="fake tensors of torch before pull request 163187 ask the driver of a real GPU",
)

WORDS = 20
SIZES = {"embedding_size": 8, "hidden_size": 12, "attention_size": 8, "memory_size": 6}

precisions = pytest.mark.parametrize("in_bfloat16", [False, True], ids=["float32", "bfloat16"])

TRANSFORMER = {
    **{"kind": "transformer", "embedding_size": 8, "heads": 2},
    **{"inner_size": 12, "layers": 2, "memory_size": 6},
}


def make_decoder(**fields: Any) -> CaptionDecoder:
    sizes = {} if fields.get("kind") == "transformer" else SIZES
    with torch.device(DEVICE):
        return make_caption_decoder(decoder_config({**sizes, **fields}), WORDS)


def make_encoder() -> VGGEncoder:
    with torch.device(DEVICE):
        return VGGEncoder(VGGConfig(name="vgg11_bn", width=0.05))


def make_translation_model(name: str) -> Any:
    with torch.device(DEVICE):
        return CONFIGS[name].make(SIZE, SIZE)


def caption_batch(**fields: Any) -> CaptioningBatch:
    """A batch on the CPU, as the loader gives it."""
    tokens = torch.randint(4, WORDS, (3, 5))
    mask = torch.arange(5) < torch.tensor([[5], [4], [2]])
    return CaptioningBatch(torch.rand(3, 9, 6).half(), tokens, tokens, mask, **fields)


def translation_batch() -> TranslationBatch:
    source, source_mask = collate_sources([[4, 5, 6], [7], [8, 9]])
    tokens = torch.randint(4, SIZE, (3, 4))
    mask = torch.arange(4) < torch.tensor([[4], [3], [1]])
    return TranslationBatch(source, source_mask, tokens, tokens, mask)


def make_step(
    gpu: Operations, loss: nn.Module, batch: Any, optimizer: str, monkeypatch: Any
) -> None:
    """A whole step of training; fake tensors have no backward pass, so gradients are zeros."""

    def backward(found: Tensor) -> None:
        assert found.requires_grad
        assert (found.device, found.shape) == (gpu.device, ())
        for parameter in loss.parameters():
            parameter.grad = torch.zeros_like(parameter)

    monkeypatch.setattr(Tensor, "backward", backward)
    config = TrainingConfig(optimizer=optimizer)
    made = make_optimizer(loss, config)
    assert made.defaults.get("fused", False) == (optimizer == "adam")
    gpu.allowed = ["float64"]
    stepper = Stepper(loss, made, config, Engine(gpu.device), Path("absent"))
    # What is summed in float64 where there is one is summed in float32 here, as on MPS.
    stepper._dtype, stepper._failure = torch.float32, stepper._failure.float()
    gpu.allowed, gpu.is_busy = [], True
    for number in range(2):
        stepper.make(Step([Part(batch, 3), Part(batch, 2)], 5), number, 0)


@precisions
@pytest.mark.parametrize(
    ("decoder", "objective", "batch"),
    [
        ({}, {}, {}),
        ({"standardise": True, "memory_dropout": 0.5}, {"label_smoothing": 0.1}, {}),
        ({"gate": "vector"}, {"doubly_stochastic_target": "share"}, {}),
        ({"gate": "none"}, {"scheduled_sampling": 0.5}, {"progress": 0.5}),
        ({"deep_output": False}, {"grounding": 0.5}, {"places": torch.rand(3, 5, 9)}),
        (
            {**TRANSFORMER, "standardise": True},
            {"label_smoothing": 0.1, "scheduled_sampling": 0.5},
            {"progress": 0.5},
        ),
        ({"selection": "hard"}, {}, {}),
        ({"selection": "hard"}, {"draws": 3, "scheduled_sampling": 0.5}, {"progress": 0.5}),
    ],
)
def test_a_captioner_is_trained(
    decoder: dict[str, Any],
    objective: dict[str, Any],
    batch: dict[str, Any],
    in_bfloat16: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_gpu(in_bfloat16) as gpu:
        model = make_decoder(**decoder)
        with torch.device(DEVICE):
            if model.config.selection == "soft":
                loss = CaptioningLoss(model, ObjectiveConfig(**objective))
            else:
                loss = HardAttentionLoss(model, ObjectiveConfig(doubly_stochastic=0, **objective))
        make_step(gpu, loss, caption_batch(**batch), "adam", monkeypatch)


@precisions
def test_an_encoder_is_trained_with_a_captioner(
    in_bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three captions of two photos."""
    with fake_gpu(in_bfloat16) as gpu:
        encoder = make_encoder()
        encoder.freeze(1, batch_norm=True)
        loss = CaptioningLoss(make_decoder(memory_size=512), ObjectiveConfig(), encoder)
        batch = caption_batch(photos=torch.tensor([0, 0, 1]))
        batch = batch._replace(source=torch.rand(2, 3, 64, 64))
        make_step(gpu, loss, batch, "adam", monkeypatch)


@precisions
@pytest.mark.parametrize("decoder", [{}, TRANSFORMER], ids=["lstm", "transformer"])
@pytest.mark.parametrize("baseline", ["new", "greedy"])
def test_a_captioner_is_trained_on_rewards(
    baseline: str, decoder: dict[str, Any], in_bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given what decoding fetched."""
    objective = ObjectiveConfig(self_critical=SelfCriticalConfig(baseline=baseline, samples=2))

    def captions(self: Any, memory: Any, strategy: Strategy) -> list[list[list[int]]]:
        return [[[5, 6, 2]] * strategy.width] * 3

    monkeypatch.setattr(SelfCriticalLoss, "_captions", captions)
    with fake_gpu(in_bfloat16) as gpu:
        loss = SelfCriticalLoss(
            make_decoder(**decoder), objective, lambda rows, sampled: torch.rand(3, len(sampled[0]))
        )
        make_step(gpu, loss, caption_batch(rows=torch.arange(3)), "rmsprop", monkeypatch)


@precisions
@pytest.mark.parametrize("name", CONFIGS)
def test_a_translator_is_trained(
    name: str, in_bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_gpu(in_bfloat16) as gpu:
        objective = TranslationObjective(label_smoothing=0.1)
        loss = TranslationLoss(make_translation_model(name), objective)
        make_step(gpu, loss, translation_batch(), "adam", monkeypatch)


def test_reports_are_summed_without_float64_on_mps() -> None:
    """Fake tensors of MPS have no gradient, so no step is made."""
    with fake_gpu(device=torch.device("mps", 0)) as gpu:
        weight, config = torch.ones(2, 2, device=gpu.device), TrainingConfig()
        model = nn.Embedding.from_pretrained(weight, freeze=False)
        optimizer = make_optimizer(model, config)
        stepper = Stepper(model, optimizer, config, Engine(gpu.device), Path("absent"))
        stepper.reset({"loss": 1.0})


def test_samples_are_drawn_on_the_gpu() -> None:
    with fake_gpu():
        strategy = SearchOptions(sample=True, seed=3).strategy(device=DEVICE)
        assert isinstance(strategy, Sampling)
        assert strategy.generator.device == DEVICE


STRATEGIES: list[Any] = [
    lambda: BeamSearch(3),
    lambda: Sampling(torch.Generator(), 2),
    lambda: Sampling(torch.Generator(DEVICE), 2, temperature=0.5, top_k=6, top_p=0.9),
]


READ = [0, 2, 1, 0, 0, 1]
"""What two steps read of two sources: nothing failed, and how many rows of each are live."""

READ_OF_THREE = [0, 2, 1, 1, 0, 0, 1, 0]


def decode_three_steps(gpu: Operations, decoder: Decoder, memory: Any, strategy: Strategy) -> None:
    """The third step reads too, and then the search would go on. Each reads all by one transfer.

    A beam computes two rows at the second step, and one row of one source at the third.
    """
    options = Constraints(2, 9, 2, (0, 1), repeat_distance=2, repeatable=(5,))
    gpu.is_busy = True
    observed = mock.patch.object(decoder, "step", wraps=decoder.step)
    transfers = mock.patch.object(
        FakeTensor, "tolist", autospec=True, side_effect=FakeTensor.tolist
    )
    with observed as step, transfers as tolist, pytest.raises(EndOfAnswers):
        decode(decoder, memory, start=1, end=2, strategy=strategy, constraints=options)
    assert step.call_count == 3  # Fewer, if a step reads more.
    assert tolist.call_count == 3


@precisions
@pytest.mark.parametrize("fields", [{}, {"selection": "hard"}, TRANSFORMER])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_caption_is_decoded(strategy: Any, fields: dict[str, Any], in_bfloat16: bool) -> None:
    with fake_gpu(in_bfloat16, READ) as gpu:
        decoder = make_decoder(**fields).eval()
        memory = decoder.remember(torch.rand(2, 9, 6).to(DEVICE))
        decode_three_steps(gpu, decoder, memory, strategy())


@precisions
@pytest.mark.parametrize("name", CONFIGS)
def test_a_translation_is_decoded(name: str, in_bfloat16: bool) -> None:
    for strategy in STRATEGIES[::2]:
        with fake_gpu(in_bfloat16, READ_OF_THREE) as gpu, torch.no_grad():
            model = make_translation_model(name).eval()
            batch = translation_batch()
            memory = model.remember(batch.source.to(DEVICE), batch.source_mask)
            decode_three_steps(gpu, model, memory, strategy())


@pytest.mark.parametrize("fields", [{}, {"selection": "hard"}, TRANSFORMER])
def test_sums_over_words_are_in_float32_under_autocast(fields: dict[str, Any]) -> None:
    with fake_gpu(in_bfloat16=True):
        decoder = make_decoder(**fields)
        memory = decoder.remember(torch.rand(2, 9, 6).to(DEVICE))
        tokens = torch.full((2, 1, 4), 5).to(DEVICE)
        forced = decoder(memory, tokens)
        assert forced.logits.dtype == torch.bfloat16
        assert forced.weights.dtype == torch.float32
        if forced.log_probability is not None:  # Of hard attention.
            assert forced.log_probability.dtype == forced.entropy.dtype == torch.float32
        start = decoder.start(memory)
        step = decoder.step(tokens[..., 0], start)
        if isinstance(step.state, DecoderState):  # A Transformer's sums over words are weights.
            for state in (start, step.state):
                assert [each.dtype for each in state[1:]] == [torch.float32] * 2
        assert step.weights.dtype == torch.float32


@pytest.mark.parametrize("name", CONFIGS)
def test_states_of_translators_are_in_float32_under_autocast(name: str) -> None:
    with fake_gpu(in_bfloat16=True):
        model = make_translation_model(name)
        batch = translation_batch()
        memory = model.remember(batch.source.to(DEVICE), batch.source_mask)
        state = model.start(memory)
        for _ in range(2):
            step = model.step(torch.full((3, 1), 5).to(DEVICE), state)
            state = step.state
            recurrent = getattr(state, "hidden", getattr(state, "recurrent", ()))
            for each in torch.utils._pytree.tree_leaves(recurrent):
                assert each.dtype == torch.float32
            if not name.startswith(("gru", "lstm")):  # They attend to one vector.
                assert step.weights.dtype == torch.float32


def test_photos_are_encoded() -> None:
    with fake_gpu() as gpu:
        encoder = make_encoder()
        encoder.freeze(2, batch_norm=True)
        gpu.is_busy = True
        for _ in (encoder.train(), encoder.eval()):
            vectors = encode(encoder, torch.rand(2, 3, 64, 64))
            assert (vectors.device, vectors.shape) == (DEVICE, (2, 16, 512))
        gpu.is_busy = False
        pixels = blurred(torch.rand(3, 64, 64).to(DEVICE))
        places = torch.rand(4, 8, 8).to(DEVICE) < 0.5
        assert blur_places(pixels, pixels.flip(0), places).shape == (4, 3, 64, 64)
    with fake_gpu(in_bfloat16=True):
        assert make_encoder()(torch.rand(2, 3, 64, 64).to(DEVICE)).dtype == torch.bfloat16


def test_annotation_vectors_leave_the_gpu_before_they_become_float64() -> None:
    with fake_gpu(allowed=["copies"]):
        photos = [torch.rand(2, 9, 6).to(DEVICE) for _ in range(2)]
        with pytest.raises(UserError, match="all are alike"):  # Without values, sums stay 0.
            Standardisation(6).fit(photos)


@pytest.mark.parametrize("length", [2, 9])
def test_hypotheses_are_fetched_by_two_transfers(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU: fake tensors have no values to end a search with. Each step makes one too."""
    calls: list[str] = []

    def count(name: str) -> None:
        original = getattr(Tensor, name)

        def counted(self: Tensor) -> Any:
            calls.append(name)
            return original(self)

        monkeypatch.setattr(Tensor, name, counted)

    for name in ("tolist", "cpu", "nonzero"):
        count(name)
    decoder = make_caption_decoder(decoder_config(SIZES), WORDS).eval()
    options = Constraints(minimum_length=length, maximum_length=length)
    decode(decoder, decoder.remember(torch.rand(2, 9, 6)), start=1, end=2, constraints=options)
    # The last makes a list of what is on the CPU.
    assert calls[-3:] == ["tolist", "cpu", "tolist"]
    assert len(calls) == length + 1 + 3


def test_a_captioner_works_on_the_gpu() -> None:
    """From photos to the first step of the search, and given captions to their maps."""
    model = captioner.load("default", precision="float32")
    photo = Image.new("RGB", (90, 120))
    with fake_gpu(answers=[]) as gpu:
        model.to(DEVICE)
        with pytest.raises(EndOfAnswers):
            model.caption([photo, photo])
        gpu.answers, gpu.allowed = [0.0] * 4, ["copies"]
        annotations = model.annotations([photo])
        (caption,) = model.teacher_forced(annotations, [["a", "dog"]])
        assert caption.attention.device.type == "cpu"
        assert model.confidence is not None
        assert len(model.confidence.unusualness(annotations)) == 1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_translator_works_on_the_gpu(precision: str) -> None:
    model = captioner.load_translator("english_german", precision=precision)
    with fake_gpu(answers=[]), pytest.raises(EndOfAnswers):
        model.to(DEVICE).translate(["A dog runs.", "A man."])
