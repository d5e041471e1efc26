"""The plain way of training and decoding that `benchmark.py` measures against.

The common recipe for Show, Attend and Tell, with the weights of a given decoder: keys projected at
every step, `torch.nn.LSTMCell`, the output layer inside the loop, one image decoded at a time, its
beam as copies of the annotation vectors; everything in float32 and left to autograd.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.attention.scores import AdditiveScore
from captioner.models.show_attend_tell import ShowAttendTellDecoder


def dense(layer: nn.Linear, vectors: Tensor) -> Tensor:
    """Vectors (..., I) -> (..., O), by torch's own product: this package's layers have another."""
    return functional.linear(vectors, layer.weight, layer.bias)


def start(decoder: ShowAttendTellDecoder, annotations: Tensor) -> tuple[Tensor, Tensor]:
    """Annotation vectors (B, L, D) -> the LSTM's first state and cell, (B, H) each."""
    mean = annotations.mean(dim=1)  # (B, D)
    hidden = torch.tanh(dense(decoder.initial_hidden, mean))
    return hidden, torch.tanh(dense(decoder.initial_cell, mean))


def step(
    decoder: ShowAttendTellDecoder, annotations: Tensor, words: Tensor, state: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """One word: (B, L, D) and words (B) -> logits (B, V), weights (B, L) and the new state."""
    score = decoder.attention.score
    assert isinstance(score, AdditiveScore)
    hidden, cell = state
    keys = dense(score.key_projection, annotations)  # (B, L, A)
    query = dense(score.query_projection, hidden).unsqueeze(1)  # (B, 1, A)
    scores = dense(score.energy, torch.tanh(keys + query)).squeeze(2)  # (B, L)
    weights = torch.softmax(scores, dim=1)  # (B, L)
    context = (annotations * weights.unsqueeze(2)).sum(dim=1)  # (B, D)
    context = torch.sigmoid(dense(decoder.gate, hidden)) * context
    embedded = decoder.embedding(words)  # (B, E)
    hidden, cell = decoder.lstm(torch.cat([embedded, context], dim=1), (hidden, cell))
    said = embedded + dense(decoder.output_hidden, hidden) + dense(decoder.output_context, context)
    return dense(decoder.output, said), weights, (hidden, cell)


def training_loss(
    decoder: ShowAttendTellDecoder, annotations: Tensor, inputs: Tensor, targets: Tensor
) -> Tensor:
    """The mean loss of captions (B, T) without padding: cross-entropy, doubly stochastic."""
    state = start(decoder, annotations)
    batch_size, steps = inputs.shape
    logits = annotations.new_zeros(batch_size, steps, decoder.output.out_features)  # (B, T, V)
    weights = annotations.new_zeros(batch_size, steps, annotations.shape[1])  # (B, T, L)
    for time in range(steps):
        words = inputs[:, time]
        logits[:, time], weights[:, time], state = step(decoder, annotations, words, state)
    entropy = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    penalty = (1 - weights.sum(dim=1)).square().sum()
    return (entropy + penalty) / batch_size


@torch.no_grad()
def beam_search(
    decoder: ShowAttendTellDecoder,
    annotations: Tensor,
    beam: int,
    length: int,
    start_word: int,
    end_word: int,
) -> tuple[list[int], float]:
    """The best caption of one image, (L, D), of exactly `length` words, and its log-probability.

    Takes `length` + 1 steps: the last gives the end.
    """
    copies = annotations.unsqueeze(0).expand(beam, -1, -1).contiguous()  # (K, L, D)
    state = start(decoder, copies)
    words = torch.full((beam,), start_word, device=copies.device)
    totals = torch.zeros(beam, device=copies.device)
    history = words.new_empty(beam, 0)
    maps: list[Tensor] = []
    for time in range(length):
        logits, weights, state = step(decoder, copies, words, state)
        maps.append(weights)
        chances = torch.log_softmax(logits, dim=1)  # (K, V)
        chances[:, end_word] = float("-inf")
        candidates = totals.unsqueeze(1) + chances  # (K, V)
        if time == 0:
            candidates = candidates[:1]  # The rows are all the same yet.
        totals, index = candidates.flatten().topk(beam)
        parents, words = index // chances.shape[1], index % chances.shape[1]
        history = torch.cat([history[parents], words.unsqueeze(1)], dim=1)
        copies = copies[parents]
        state = state[0][parents], state[1][parents]
        maps = [each[parents] for each in maps]
    logits, _, _ = step(decoder, copies, words, state)
    totals = totals + torch.log_softmax(logits, dim=1)[:, end_word]
    best = int(totals.argmax())
    return history[best].tolist(), float(totals[best])
