"""Scheduled sampling: sometimes feeds the decoder its own words in training.

Bengio et al. 2015, *Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks*,
section 2.4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from captioner.attention import Memory, draw
from captioner.caption.caption_decoder import CaptionDecoder, evaluation_mode


@torch.no_grad()
def scheduled_inputs(
    decoder: CaptionDecoder,
    memory: Memory,
    inputs: Tensor,
    probability: float,
    generator: torch.Generator,
) -> Tensor:
    """Replace words of the captions at random by words that the decoder draws.

    inputs: (B, T) words of teacher forcing, `<start>` first, which stays.
    probability: of replacing each later word, independently, by one drawn from the decoder's
        distribution after the words fed so far.
    generator: the source of the draws, on the device of `inputs`.

    The decoder runs in evaluation mode: hard attention takes the most probable position, and
    dropout is off, except that in the memory (`memory_dropout`). As in the paper no gradient
    passes through a drawn word, so the loss is teacher forcing of the returned words.
    """
    with evaluation_mode(decoder):
        fed = [inputs[:, :1]]  # (B, 1) each
        state: object = decoder.start(memory)
        for time in range(1, inputs.shape[1]):
            step = decoder.step(fed[-1], state)
            state = step.state
            probabilities = torch.softmax(step.logits[:, 0].float(), dim=-1)  # (B, V)
            drawn = draw(probabilities, generator).unsqueeze(1)  # (B, 1)
            chance = torch.rand(drawn.shape, generator=generator, device=inputs.device)  # (B, 1)
            fed.append(torch.where(chance < probability, drawn, inputs[:, time : time + 1]))
    # Torch before about 2.11 caches on GPUs the weights that autocast casts here, without a
    # gradient, and reuses them in the forward pass: pytorch issue 112583.
    torch.clear_autocast_cache()
    return torch.cat(fed, dim=1)  # (B, T)
