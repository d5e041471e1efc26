"""The hand-written recurrence against the same equations step by step, under autograd."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captioner import cpu
from captioner.decoding.protocol import TeacherForced
from captioner.models.caption_config import DecoderConfig
from captioner.models.show_attend_tell import ShowAttendTellDecoder

WORDS, PLACES, MEMORY = 11, 9, 8
"""V, L and D here."""


def make(**options: Any) -> ShowAttendTellDecoder:
    """A decoder in training mode; the same weights every time."""
    sizes = {"embedding_size": 5, "hidden_size": 6, "attention_size": 7, "memory_size": MEMORY}
    torch.manual_seed(0)
    decoder = ShowAttendTellDecoder(DecoderConfig(**{**sizes, **options}), WORDS).double()
    decoder.dropout = nn.Dropout(decoder.config.dropout)  # The same draws with the switch off.
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.6)
    return decoder


def run(
    decoder: ShowAttendTellDecoder, rows: int = 2, expected: Tensor | None = None
) -> tuple[TeacherForced, dict[str, Tensor]]:
    """The decoder's output for random captions, and all gradients, of the photos too."""
    generator = torch.Generator().manual_seed(1)
    like = {"generator": generator, "dtype": torch.float64}
    photos = torch.randn(3, PLACES, MEMORY, **like).to(decoder.output.weight.dtype)
    photos.requires_grad_()
    words = torch.randint(WORDS, (3, rows, 4), generator=generator)
    memory = decoder.attention.remember(photos)
    torch.manual_seed(3)  # Of dropout.
    said = decoder(memory, words, torch.Generator().manual_seed(2), expected)
    loss = (said.logits * torch.randn(said.logits.shape, **like)).sum()
    loss = loss + (said.weights * torch.randn(said.weights.shape, **like)).sum()
    if said.log_probability is not None:
        loss = loss + (said.log_probability * torch.randn(said.entropy.shape, **like)).sum()
        loss = loss + (said.entropy * torch.randn(said.entropy.shape, **like)).sum()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in decoder.named_parameters()}
    return said, {"photos": photos.grad, **gradients}  # type: ignore[dict-item]


@pytest.mark.parametrize("gate", ["scalar", "vector", "none"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("selection", ["soft", "hard", "half"])
def test_equals_the_plain_recurrence(
    gate: str, rows: int, selection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"gate": gate, "selection": "soft" if selection == "soft" else "hard"}
    options["temperature"] = 0.5
    expected = None
    if selection == "half":  # Semi-sampling: some captions take the expected value.
        expected = torch.arange(3 * rows).view(3, rows) % 2 == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(ShowAttendTellDecoder, "_recur")
        found = run(make(**options), rows, expected)
    monkeypatch.setenv(cpu.SWITCH, "0")
    monkeypatch.delattr(ShowAttendTellDecoder, "_recur_on_cpu")
    wanted = run(make(**options), rows, expected)
    torch.testing.assert_close(found, wanted)
    assert [name for name, gradient in wanted[1].items() if not gradient.any()] == []


def test_masked_places_have_no_weight() -> None:
    mask = torch.arange(PLACES) % 2 == 0
    memory = make().attention.remember(torch.ones(1, PLACES, MEMORY).double(), mask.unsqueeze(0))
    weights = make()(memory, torch.zeros(1, 1, 4, dtype=torch.long)).weights  # (1, 1, T, L)
    assert weights[..., mask].all()
    assert not weights[..., ~mask].any()


def test_is_as_exact_as_it_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        found = run(make().float())
        monkeypatch.setenv(cpu.SWITCH, "0")
        plain = run(make().float())
    exact = run(make())
    for name, gradient in exact[1].items():
        scale = gradient.norm()
        error = (found[1][name] - gradient).norm() / scale
        assert error < 0.05, name
        assert error < 2 * (plain[1][name] - gradient).norm() / scale + 0.005, name
    assert found[0].weights.dtype == torch.float32  # The softmax's; nothing is rounded.
