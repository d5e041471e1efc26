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


class TutorialEncoder(nn.Module):
    """A ResNet-101 without its last two layers, with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.resnet = nn.Sequential(*list(resnet101().children())[:-2])
        self.adaptive_pool = nn.AdaptiveAvgPool2d((14, 14))
        for name, tensor in self.state_dict().items():
            if tensor.dim() == 1:  # Of batch normalisation; 1 would let the numbers grow.
                tensor.uniform_(*((0.9, 1.1) if "var" in name else (0.5, 0.7)))


class TutorialDecoder(nn.Module):
    """The tutorial's names."""

    def __init__(self, memory: int) -> None:
        super().__init__()
        self.attention = nn.Module()
        self.attention.encoder_att = nn.Linear(memory, ATTENTION)
        self.attention.decoder_att = nn.Linear(HIDDEN, ATTENTION)
        self.attention.full_att = nn.Linear(ATTENTION, 1)
        self.embedding = nn.Embedding(len(TUTORIAL_MAP), EMBEDDING)
        self.decode_step = nn.LSTMCell(EMBEDDING + memory, HIDDEN)
        self.init_h = nn.Linear(memory, HIDDEN)
        self.init_c = nn.Linear(memory, HIDDEN)
        self.f_beta = nn.Linear(HIDDEN, memory)
        self.fc = nn.Linear(HIDDEN, len(TUTORIAL_MAP))
        for parameter in self.parameters():
            is_small = parameter.dim() > 1 and parameter.shape[1] < 50
            nn.init.normal_(parameter, std=1.2 if is_small else 0.1)


def other_state(decoder: TutorialDecoder) -> dict[str, torch.Tensor]:
    """The state dict of such a decoder, with AaronCCWong's names."""
    names = {"encoder_att": "W", "decoder_att": "U", "full_att": "v"}
    state = dict(decoder.state_dict())
    for ours, theirs in {**names, "decode_step": "lstm", "fc.": "deep_output."}.items():
        state = {name.replace(ours, theirs): tensor for name, tensor in state.items()}
    return state


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


class Reference:
    """The equations of a decoder of one photo's annotation vectors (L, D), in float64."""

    def __init__(self, decoder: TutorialDecoder, vectors: Any, is_tutorial: bool) -> None:
        self.weights = {name: each.double().numpy() for name, each in decoder.state_dict().items()}
        self.vectors, self.is_tutorial = vectors.astype(np.float64), is_tutorial

    def linear(self, name: str, x: Any) -> Any:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def start(self) -> Any:
        mean = self.vectors.mean(axis=0)
        state = np.stack([self.linear("init_h", mean), self.linear("init_c", mean)])
        return state if self.is_tutorial else np.tanh(state)

    def step(self, token: int, state: Any) -> tuple[Any, Any, Any]:
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
        sides = ("ih", inputs), ("hh", hidden)
        parts = [self.weights[f"decode_step.weight_{name}"] @ side for name, side in sides]
        parts += [self.weights[f"decode_step.bias_{name}"] for name, _ in sides]
        i, f, g, o = np.split(sum(parts), 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        return self.linear("fc", hidden), weights, np.stack([hidden, cell])

    def given(self, tokens: Sequence[int]) -> tuple[Any, Any]:
        """Logits (T, V) and maps (T, L) of fed words."""
        steps = [(None, None, self.start())]
        for token in tokens:
            steps.append(self.step(token, steps[-1][2]))
        return np.stack([each[0] for each in steps[1:]]), np.stack([each[1] for each in steps[1:]])

    def search(self, numbers: dict[str, int], beam: int, longest: int) -> list[str]:
        """The likeliest sentence that a beam finds which shrinks by one for every end."""
        end = numbers.get("<end>", numbers.get("<eos>"))
        special = [numbers[name] for name in ("<pad>", "<start>", "<unk>")]
        live: list[Any] = [(0.0, [numbers["<start>"]], self.start())]
        ended: list[Any] = []
        while live:
            found = []
            for score, tokens, state in live:
                logits, _, after = self.step(tokens[-1], state)
                logits -= np.log(np.exp(logits).sum())
                allowed = {*range(len(logits))} - {*special, *([end] if len(tokens) == 1 else [])}
                allowed = {end} if len(tokens) > longest else allowed
                found += [(score + logits[n], [*tokens, n], after) for n in allowed]
            best = sorted(found, key=lambda each: -each[0])[: beam - len(ended)]
            ended += [each for each in best if each[1][-1] == end]
            live = [each for each in best if each[1][-1] != end]
        whole = [each for each in ended if len(each[1]) < longest + 2]  # The rest is cut off.
        tokens = max(whole or ended, key=lambda each: each[0])[1][1:-1]
        return [word for token in tokens for word in numbers if numbers[word] == token]
