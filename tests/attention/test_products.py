"""Products by the quicker library against torch's own."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from captioner.attention.products import Linear, PackedOnce, linear, packed


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 4), (2, 5, 4), (0, 4)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_is_torch_s_linear_plain_and_packed(
    shape: tuple[int, ...], bias: bool, dtype: torch.dtype
) -> None:
    x, weight = random(*shape, seed=0).to(dtype), random(6, 4, seed=1).to(dtype)
    offset = random(6, seed=2).to(dtype) if bias else None
    with torch.no_grad():
        wanted = functional.linear(x, weight, offset)
        for given in (weight, packed(weight)):
            found = linear(x, given, offset)
            assert found.dtype == dtype
            torch.testing.assert_close(found, wanted)


def test_a_gradient_passes() -> None:
    layer, x = Linear(4, 6), random(3, 4, seed=0).requires_grad_()
    wanted = torch.autograd.grad(
        functional.linear(x, layer.weight, layer.bias).square().sum(), [x, *layer.parameters()]
    )
    found = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    for own, other in zip(found, wanted, strict=True):
        assert torch.equal(own, other)
    assert not packed(layer.weight).is_mkldnn  # With a gradient wanted nothing is packed.


def test_autocast_decides_as_it_does_for_torch_s() -> None:
    layer, x = Linear(4, 6), random(3, 4, seed=0)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        assert linear(x, packed(layer.weight.bfloat16()), layer.bias).dtype == torch.bfloat16


@torch.no_grad()
def test_what_is_packed_is_kept_until_a_parameter_changes() -> None:
    once, weight = PackedOnce(), torch.nn.Parameter(random(6, 4, seed=0))
    made: list[int] = []

    def make() -> tuple[Tensor, ...]:
        made.append(1)
        return (packed(weight),)

    x = random(3, 4, seed=1)
    for _ in range(2):
        (found,) = once(make, [weight], torch.float32)
    assert len(made) == 1
    once(make, [weight], torch.bfloat16)
    assert len(made) == 2
    for change in (
        lambda: weight.mul_(2),
        lambda: torch.nn.init.ones_(weight),
        lambda: setattr(weight, "data", random(6, 4, seed=3)),
        once.forget,
    ):
        change()
        before = len(made)
        for _ in range(2):
            (found,) = once(make, [weight], torch.bfloat16)
        assert len(made) == before + 1
        torch.testing.assert_close(linear(x, found), functional.linear(x, weight))
    with torch.enable_grad():  # Nothing that has a gradient is kept.
        once(make, [weight], torch.bfloat16)
        once(make, [weight], torch.bfloat16)
    assert len(made) == before + 3


@torch.no_grad()
def test_copies_of_what_is_kept_are_empty() -> None:
    once, weight = PackedOnce(), random(6, 4, seed=0)
    once(lambda: (packed(weight),), [weight], torch.float32)
    made: list[int] = []

    def make() -> tuple[Tensor, ...]:
        made.append(1)
        return (weight,)

    for copied in (copy.deepcopy(once), pickle.loads(pickle.dumps(once))):
        copied(make, [weight], torch.float32)
    assert len(made) == 2


@torch.no_grad()
def test_a_layer_follows_its_weights() -> None:
    layer, x = Linear(4, 6).eval(), random(3, 4, seed=0)

    def check() -> None:
        for given in (x, x[:0], x.view(3, 1, 4)):
            torch.testing.assert_close(
                layer(given), functional.linear(given, layer.weight, layer.bias)
            )

    check()
    layer.weight.mul_(2)
    check()
    layer.load_state_dict(Linear(4, 6).state_dict())
    check()
    layer.weight.data.mul_(2)  # which torch does not count
    layer.train()
    check()
    copied = copy.deepcopy(layer)
    copied.weight.zero_()
    assert torch.equal(copied(x), layer.bias.expand(3, 6))
    check()
