"""Score functions: how well a query matches each key.

Each has two halves: `project_keys`, run once a memory, and `forward`, run for every query: queries
(..., Q, H) and a memory with values (..., L, D) and projected keys (..., L, A) -> scores
(..., Q, L). The leading dimensions are B, or B and N heads.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner import cpu
from captioner.attention.memory import Memory


class Score(nn.Module):
    """Base class of the score functions, which have a `forward`.

    sizes: H, D and A; a score takes those that it needs.
    """

    def __init__(self, *sizes: int) -> None:
        super().__init__()

    def project_keys(self, values: Tensor) -> Tensor:
        """Values (..., L, D) -> keys (..., L, A). The values themselves by default."""
        return values


class DotScore(Score):
    """q . k. Luong et al. 2015, section 3.1, `dot`. Needs H = D."""

    def __init__(self, query_size: int = 0, memory_size: int = 0, *_: int) -> None:
        super().__init__()
        if query_size != memory_size:
            raise ValueError(f"sizes {query_size} and {memory_size} differ; general takes both")

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Queries (..., Q, D) and a memory -> scores (..., Q, L)."""
        return query @ memory.keys.transpose(-2, -1)  # (..., Q, L)


class ScaledDotProductScore(DotScore):
    """q . k / sqrt(size of a key). Vaswani et al. 2017, equation 1. Needs H = A."""

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Queries (..., Q, A) and a memory -> scores (..., Q, L)."""
        return super().forward(query / math.sqrt(memory.keys.shape[-1]), memory)  # (..., Q, L)


class GeneralScore(DotScore):
    """q^T W k. Luong et al. 2015, section 3.1, `general`.

    W k is computed once a memory, so a step costs no more than a dot product.
    """

    def __init__(self, query_size: int, memory_size: int, *_: int) -> None:
        super().__init__()
        self.key_projection = nn.Linear(memory_size, query_size, bias=False)

    def project_keys(self, values: Tensor) -> Tensor:
        """Values (..., L, D) -> keys (..., L, H)."""
        return self.key_projection(values)  # type: ignore[no-any-return]


class CosineScore(GeneralScore):
    """s cos(q, W k) with a learned scale s, at first 10.

    Liu et al. 2022, *Swin Transformer V2*, equation 2: a cosine alone is at most 1, and its softmax
    over 196 places nearly even.
    """

    def __init__(self, query_size: int, memory_size: int, *_: int) -> None:
        super().__init__(query_size, memory_size)
        self.scale = nn.Parameter(torch.tensor(10.0))

    def project_keys(self, values: Tensor) -> Tensor:
        """Values (..., L, D) -> keys (..., L, H) of length 1."""
        keys = super().project_keys(values).float()  # In float16 the least length would be 0.
        return functional.normalize(keys, dim=-1)  # (..., L, H)

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Queries (..., Q, H) and a memory -> scores (..., Q, L)."""
        direction = functional.normalize(query.float(), dim=-1)  # (..., Q, H)
        return self.scale * super().forward(direction, memory)  # (..., Q, L)


class AdditiveScore(Score):
    """v^T tanh(W q + U k + b). Bahdanau et al. 2014, A.1.2; f_att of Xu et al. 2015.

    bias: add b, as Xu et al. do; Bahdanau et al. have none.
    activation: tanh, or relu in its place, as in some published code.
    """

    def __init__(
        self,
        query_size: int,
        memory_size: int,
        attention_size: int,
        bias: bool = True,
        activation: Literal["tanh", "relu"] = "tanh",
    ) -> None:
        super().__init__()
        self.activation = activation
        self.query_projection = nn.Linear(query_size, attention_size, bias=False)
        self.key_projection = nn.Linear(memory_size, attention_size, bias=bias)
        self.energy = nn.Linear(attention_size, 1, bias=False)
        self.has_cpu_code = cpu.is_switched_on() and activation == "tanh"

    def project_keys(self, values: Tensor) -> Tensor:
        """Values (..., L, D) -> keys (..., L, A)."""
        return self.key_projection(values)  # type: ignore[no-any-return]

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        """Projected queries (..., Q, A) and keys (..., L, A) -> scores (..., Q, L)."""
        activate = torch.relu if self.activation == "relu" else torch.tanh
        match = activate(query.unsqueeze(-2) + keys.unsqueeze(-3))  # (..., Q, L, A)
        # By a column: onnxruntime takes 10 times as long by a vector.
        energies: Tensor = self.energy(match)  # (..., Q, L, 1)
        return energies.squeeze(-1)  # (..., Q, L)

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Queries (..., Q, H) and a memory -> scores (..., Q, L); see `compare`."""
        projected = self.query_projection(query)  # (..., Q, A)
        is_decoding = memory.keys.dim() == 3 and not torch.is_grad_enabled()
        if self.has_cpu_code and is_decoding and cpu.runs_on(projected.device):
            # Decoding 32 photos at once takes 42 ms a photo in place of 101.
            v = self.energy.weight[0]  # (A)
            return cpu.additive_scores(projected, memory.keys, memory.key_exponentials, v)
        return self.compare(projected, memory.keys)


class ConcatScore(AdditiveScore):
    """v^T tanh(W [q; k]). Luong et al. 2015, section 3.1, `concat`.

    W is stored as two halves, W [q; k] = W_q q + W_k k, so that W_k k is computed once a memory.
    Unlike `AdditiveScore` it has no bias, and both halves start on one scale.
    """

    def __init__(self, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__(query_size, memory_size, attention_size, bias=False)
        whole = nn.Linear(query_size + memory_size, attention_size, bias=False)
        with torch.no_grad():
            self.query_projection.weight.copy_(whole.weight[:, :query_size])
            self.key_projection.weight.copy_(whole.weight[:, query_size:])
