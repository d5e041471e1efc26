import math

import pytest
import torch

from captioner.attention.selection import HardSelection, masked_softmax


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_scores_are_normalised_in_float32(dtype) -> None:
    # 3000 equal scores: a sum kept in bfloat16 stops growing at 256.
    scores = torch.zeros(1, 3000, dtype=dtype)
    weights = masked_softmax(scores)
    assert weights.dtype == torch.float32
    assert weights[0, 0].item() == pytest.approx(1 / 3000, rel=1e-6)
    uneven = (torch.randn(4, 300, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    assert torch.equal(masked_softmax(uneven), torch.softmax(uneven.float(), dim=-1))


def test_the_entropy_by_numbers() -> None:
    scores = torch.tensor([[[0.0, 0.0, 0.0, 5.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -500.0, 9.0]]])
    mask = torch.tensor([[[True, True, True, False], [True] * 4, [False, True, True, False]]])
    attended = HardSelection()(torch.zeros(1, 4, 1), scores, mask, None)
    expected = torch.tensor([[math.log(3), math.log(4), 0.0]])
    torch.testing.assert_close(attended.entropy, expected)
