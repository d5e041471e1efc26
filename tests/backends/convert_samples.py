"""Modules with the names of published code, and its equations in NumPy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torchvision.models import resnet101

WORDS = ["a", "dog", "man", "on", "red", "runs", "two", "water"]
TUTORIAL_MAP = {word: number for number, word in enumerate(WORDS, start=1)}
TUTORIAL_MAP |= {"<unk>": 9, "<start>": 10, "<end>": 11, "<pad>": 0}
OTHER_MAP = {"<start>": 0, "<eos>": 1, "<unk>": 2, "<pad>": 3}
OTHER_MAP |= {word: number for number, word in enumerate(WORDS, start=4)}
EMBEDDING, HIDDEN, ATTENTION = 6, 7, 5

Array = Any


class TutorialEncoder(nn.Module):
    """A ResNet-101 without its last two layers, with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.resnet = nn.Sequential(*list(resnet101().children())[:-2])
        self.adaptive_pool = nn.AdaptiveAvgPool2d((14, 14))
        for layer in self.resnet.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.uniform_(-0.1, 0.1)  # type: ignore[union-attr]
                layer.running_var.uniform_(0.8, 1.2)  # type: ignore[union-attr]


class TutorialDecoder(nn.Module):
    """The tutorial's names."""

    def __init__(self, memory: int) -> None:
        super().__init__()
        self.attention = nn.Module()
        self.attention.encoder_att = nn.Linear(memory, ATTENTION)
        self.attention.decoder_att = nn.Linear(HIDDEN, ATTENTION)
        self.attention.full_att = nn.Linear(ATTENTION, 1)
        self.embedding = nn.Embedding(len(TUTORIAL_MAP), EMBEDDING)
        self.dropout = nn.Dropout(0.5)
        self.decode_step = nn.LSTMCell(EMBEDDING + memory, HIDDEN)
        self.init_h = nn.Linear(memory, HIDDEN)
        self.init_c = nn.Linear(memory, HIDDEN)
        self.f_beta = nn.Linear(HIDDEN, memory)
        self.fc = nn.Linear(HIDDEN, len(TUTORIAL_MAP))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.6 if parameter.shape[-1] < 50 else 0.1)


OTHER_NAMES = {
    "attention.encoder_att": "attention.W",
    "attention.decoder_att": "attention.U",
    "attention.full_att": "attention.v",
    "decode_step": "lstm",
    "fc": "deep_output",
}


def other_state(decoder: TutorialDecoder) -> dict[str, torch.Tensor]:
    """The state dict of such a decoder, with AaronCCWong's names."""
    state = {}
    for name, tensor in decoder.state_dict().items():
        module, _, kind = name.rpartition(".")
        state[f"{OTHER_NAMES.get(module, module)}.{kind}"] = tensor
    return state


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Reference:
    """The equations of a decoder of one photo's annotation vectors (L, D), in float64."""

    def __init__(self, decoder: TutorialDecoder, vectors: Array, is_tutorial: bool) -> None:
        self.weights = {name: each.double().numpy() for name, each in decoder.state_dict().items()}
        self.vectors, self.is_tutorial = vectors.astype(np.float64), is_tutorial

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def start(self) -> Array:
        mean = self.vectors.mean(axis=0)
        state = np.stack([self.linear("init_h", mean), self.linear("init_c", mean)])
        return state if self.is_tutorial else np.tanh(state)

    def step(self, token: int, state: Array) -> tuple[Array, Array, Array]:
        """The logits (V), the map (L) and the state after a word."""
        hidden, cell = state
        total = self.linear("attention.encoder_att", self.vectors)
        total = total + self.linear("attention.decoder_att", hidden)
        total = np.maximum(total, 0) if self.is_tutorial else np.tanh(total)
        scores = self.linear("attention.full_att", total)[:, 0]
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        context = sigmoid(self.linear("f_beta", hidden)) * (weights @ self.vectors)
        inputs = np.concatenate([self.weights["embedding.weight"][token], context])
        lstm = {name: self.weights[f"decode_step.{name}"] for name in ("weight_ih", "weight_hh")}
        gates = lstm["weight_ih"] @ inputs + lstm["weight_hh"] @ hidden
        gates += self.weights["decode_step.bias_ih"] + self.weights["decode_step.bias_hh"]
        i, f, g, o = np.split(gates, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        return self.linear("fc", hidden), weights, np.stack([hidden, cell])

    def given(self, tokens: Sequence[int]) -> tuple[Array, Array]:
        """Logits (T, V) and maps (T, L) of fed words."""
        state, logits, maps = self.start(), [], []
        for token in tokens:
            scores, weights, state = self.step(token, state)
            logits.append(scores)
            maps.append(weights)
        return np.stack(logits), np.stack(maps)

    def search(self, numbers: dict[str, int], beam: int, longest: int) -> list[str]:
        """The likeliest sentence that a beam finds which shrinks by one for every end."""
        end = numbers.get("<end>", numbers.get("<eos>"))
        special = [numbers[name] for name in ("<pad>", "<start>", "<unk>")]
        live: list[Any] = [(0.0, [numbers["<start>"]], self.start())]
        ended: list[Any] = []
        for length in range(longest + 1):
            found = []
            for score, tokens, state in live:
                logits, _, after = self.step(tokens[-1], state)
                logits[special] = -np.inf
                logits -= np.log(np.exp(logits - logits.max()).sum()) + logits.max()
                logits[end] = -np.inf if length == 0 else logits[end]
                found += [(score + x, [*tokens, n], after) for n, x in enumerate(logits)]
            found.sort(key=lambda each: -each[0])
            best = found[: beam - len(ended)]
            ended += [each for each in best if each[1][-1] == end]
            live = [each for each in best if each[1][-1] != end]
            if not live:
                break
        tokens = max(ended, key=lambda each: each[0])[1][1:-1]
        names = {number: name for name, number in numbers.items()}
        return [names[token] for token in tokens]
