"""Products by the quicker library against torch's own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.attention import products
from captioner.attention.products import (
    Linear,
    PackedOnce,
    forget_packed,
    in_types_given,
    linear,
    packed,
)


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


@torch.no_grad()
def test_bfloat16_is_packed_only_for_a_processor_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[torch.dtype] = []

    def reorder(weight: Tensor, batch_size: int | None) -> Tensor:
        asked.append(weight.dtype)
        return weight.clone()

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", reorder)
    weight = random(6, 4, seed=0)
    for known, wanted in (
        (True, [torch.float32, torch.bfloat16]),
        (False, [torch.float32]),
    ):
        monkeypatch.setattr(products, "has_bfloat16", lambda device, known=known: known)
        asked.clear()
        packed(weight)
        narrow = weight.bfloat16()
        assert (packed(narrow) is narrow) is not known
        assert asked == wanted


@torch.no_grad()
def test_without_bfloat16_a_layer_under_autocast_is_torch_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "has_bfloat16", lambda device: False)
    layer, x = Linear(4, 6).eval(), random(3, 4, seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = functional.linear(x, layer.weight, layer.bias)
        for _ in range(2):
            found = layer(x)
            assert found.dtype == torch.bfloat16
            assert torch.equal(found, wanted)


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


# Changes that torch does not count.


def follows(layer: Linear) -> None:
    """Without gradients the layer computes with the weights that it has."""
    x = random(3, 4, seed=0)
    with torch.no_grad():
        for _ in range(2):
            wanted = functional.linear(x, layer.weight, layer.bias)
            torch.testing.assert_close(layer(x), wanted)


@pytest.mark.parametrize("between", [False, True], ids=["at-once", "with-a-look-in-between"])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_layer_in_evaluation_mode_follows_a_fused_optimizer(
    kind: type[torch.optim.AdamW] | type[torch.optim.SGD], between: bool
) -> None:
    layer, x = Linear(4, 6).eval(), random(3, 4, seed=0)
    optimizer = kind(layer.parameters(), lr=0.5, fused=True)
    follows(layer)
    for _ in range(3):
        loss = layer(x).square().sum()
        if between:
            follows(layer)
        loss.backward()
        optimizer.step()
        follows(layer)


@pytest.mark.parametrize(
    "end",
    [lambda layer: layer(random(3, 4, seed=0)), nn.Module.train, nn.Module.eval, forget_packed],
    ids=["gradients", "train", "eval", "forget_packed"],
)
def test_a_layer_follows_what_was_changed_as_data_after(end: Callable[[Linear], object]) -> None:
    model = nn.Sequential(Linear(4, 6)).eval()
    layer = model[0]
    assert isinstance(layer, Linear)
    for _ in range(2):
        follows(layer)
        layer.weight.data.mul_(2)
        end(model)  # type: ignore[arg-type]
    follows(layer)


@torch.no_grad()
def test_a_layer_follows_weights_that_come_to_lie_where_others_were() -> None:
    layer, x = Linear(4, 6).eval(), random(3, 4, seed=0)
    names = "weight", "bias"
    for seed in range(20):
        given = dict(zip(names, (random(6, 4, seed=seed), random(6, seed=seed)), strict=True))
        found = torch.func.functional_call(layer, given, (x,))
        torch.testing.assert_close(found, functional.linear(x, given["weight"], given["bias"]))
        del given, found
    for seed in range(20):
        layer.load_state_dict(
            {"weight": random(6, 4, seed=seed), "bias": random(6, seed=seed)}, assign=True
        )
        follows(layer)
    for seed in range(20):
        layer.weight = nn.Parameter(random(6, 4, seed=seed))
        follows(layer)
    for seed in range(20):
        layer.weight.data = random(6, 4, seed=seed)
        follows(layer)


@torch.no_grad()
def test_forgetting_while_something_is_packed_takes_nothing_away() -> None:
    class Forgetful(PackedOnce):
        """As if another thread had it forget whatever is kept at once."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, None if name == "_kept" else value)

    weight = random(6, 4, seed=0)
    (found,) = Forgetful()(lambda: (weight * 2,), [weight], torch.float32)
    assert torch.equal(found, weight * 2)


def test_keeping_adds_nothing_to_what_is_saved() -> None:
    layer = Linear(4, 6)
    follows(layer.eval())
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert len(list(layer.parameters())) == 2


def test_types_given_are_kept_inside_autocast_only_where_asked() -> None:
    left, right = random(3, 4, seed=0), random(4, 5, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        exact = in_types_given(torch.mm)(left, right)
        assert (left @ right).dtype == torch.bfloat16  # Autocast is on again.
    assert torch.equal(exact, left @ right)
