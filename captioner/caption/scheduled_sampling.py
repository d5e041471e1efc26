"""Scheduled sampling: the decoder is sometimes fed its own words in training.

Bengio et al. 2015, *Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks*,
section 2.4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from captioner.attention import Memory
from captioner.caption.decoder import ShowAttendTellDecoder


@torch.no_grad()
def scheduled_inputs(
    decoder: ShowAttendTellDecoder,
    memory: Memory,
    inputs: Tensor,
    probability: float,
    generator: torch.Generator,
) -> Tensor:
    """The words to feed: those of the captions, or, by chance, the decoder's own.

    inputs: (B, T) words fed in under teacher forcing, `<start>` first, which always stays.
    probability: of each word behind it, drawn for itself, that it is replaced by one drawn from
        what the decoder gives at that place after the words fed so far, replaced ones among them.
    generator: what is drawn from, on the device of `inputs`.

    The decoder reads as in use: with hard attention at the likeliest places, and without dropout
    but for what the memory was given of it when it was made (`memory_dropout`). No gradient passes
    through a drawn word, in the paper neither, so a forward pass over what is given back is all
    that the loss needs. With a probability of 0 the inputs are given back.
    """
    if probability <= 0:
        return inputs
    was_training = decoder.training
    decoder.eval()
    try:
        fed = [inputs[:, :1]]  # (B, 1) each
        state: object = decoder.start(memory)
        for time in range(1, inputs.shape[1]):
            step = decoder.step(fed[-1], state)
            state = step.state
            chances = torch.softmax(step.logits[:, 0].float(), dim=-1)  # (B, V)
            drawn = torch.multinomial(chances, num_samples=1, generator=generator)  # (B, 1)
            own = torch.rand(drawn.shape, generator=generator, device=inputs.device) < probability
            fed.append(torch.where(own, drawn, inputs[:, time : time + 1]))
    finally:
        decoder.train(was_training)
        # On GPUs torch before 2.11 or so keeps the weights that autocast has cast here, without a
        # gradient, and the forward pass would use them again: pytorch issue 112583.
        torch.clear_autocast_cache()
    return torch.cat(fed, dim=1)  # (B, T)
