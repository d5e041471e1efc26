"""Self-critical sequence training: captions are rewarded for what they are judged by.

Rennie et al. 2017, *Self-Critical Sequence Training for Image Captioning*, sections 3 and 4;
Luo 2020, *A Better Variant of Self-Critical Sequence Training*, section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from captioner.attention import Memory
from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.caption.objective import ObjectiveConfig
from captioner.caption.training import CaptioningBatch, soft_attention_loss
from captioner.decoding import BeamSearch, Constraints, Sampling, Strategy, cross_entropy, decode
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import Encoder

Reward = Callable[[Tensor, Sequence[Sequence[Sequence[int]]]], Tensor]
"""Rewards (B, K) of K captions of each of B photos.

Given the photos' rows (B,), and for each its captions in words, `<end>` behind those that ended.
"""


class SelfCriticalLoss(nn.Module):
    """Minus the expected reward of the decoder's own captions, with the gradient of REINFORCE.

    For each photo captions are drawn from the decoder through the one decoder loop, without a
    gradient, and rewarded; then the decoder reads them as if they were given, and each is made more
    probable or less by its reward r less a baseline b: the gradient is that of -(r - b) log p,
    Rennie et al. 2017, equation 7, with the log-probability of the whole caption, its end included.
    A caption that was cut at the maximum length did not draw its end, which is then left out.

    Captions are drawn and read without dropout, so that they are drawn from what is trained, and
    the gradient is on average exactly that of the expected reward. The annotation vectors of an
    encoder that is trained along are those of its training mode, for both.

    reward: see `Reward`. encoder: given when it is trained together with the decoder, from photos.
    Raises `UserError` for a hard-attention decoder and for an objective that is not self-critical.
    """

    def __init__(
        self,
        decoder: ShowAttendTellDecoder,
        objective: ObjectiveConfig,
        reward: Reward,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        if objective.self_critical is None:
            raise UserError("the objective has no self_critical to say how captions are drawn")
        objective.check_selection(decoder.config.selection)
        self.decoder = decoder
        self.encoder = encoder
        self.objective = objective
        self.config = objective.self_critical
        self.reward = reward

    def loss(self, batch: CaptioningBatch) -> dict[str, Tensor]:
        """The loss of a batch under the key `loss`, and what to report beside it.

        `loss`: mean over photos and samples of -(r - b) log p, plus the weighted loss of the
            batch's own captions; its value says nothing, its gradient does. `reward`: mean of the
            samples, and `greedy_reward`, with that baseline, of greedy search. `length`: mean of
            the samples, in words. `finished`: the share of them that ended by themselves.
        Raises `UserError` for a batch that does not say which photos it is of.
        """
        config = self.config
        if batch.rows is None:
            raise UserError("self-critical training needs to know which photos a batch is of")
        annotations = batch.annotations(self.encoder)
        device = annotations.device
        with _in_use(self.decoder):
            memory = self.decoder.remember(annotations)
            generator = torch.Generator(device).manual_seed(batch.seed)
            samples = self._captions(memory, Sampling(generator, config.samples))
            rewards = self.reward(batch.rows, samples).to(device)  # (B, K)
            report = {"reward": rewards.mean()}
            if config.baseline == "greedy":
                baseline = self.reward(batch.rows, self._captions(memory, BeamSearch(1)))
                baseline = baseline.to(device)  # (B, 1)
                report["greedy_reward"] = baseline.mean()
            else:
                others = rewards.sum(dim=1, keepdim=True) - rewards  # (B, K)
                baseline = others / (config.samples - 1)  # (B, K)
            log_probability = self._log_probability(memory, samples)  # (B, K)
        loss = -((rewards - baseline) * log_probability).mean()
        if config.cross_entropy_weight > 0:
            plain = soft_attention_loss(self.decoder, self.objective, annotations, batch)
            loss = loss + config.cross_entropy_weight * plain["loss"]
            report.update((name, value) for name, value in plain.items() if name != "loss")
        ended = [caption[-1:] == [Vocabulary.end] for each in samples for caption in each]
        words = sum(len(caption) for each in samples for caption in each) - sum(ended)
        report["length"] = torch.tensor(words / len(ended), device=device)
        report["finished"] = torch.tensor(sum(ended) / len(ended), device=device)
        return {"loss": loss, **{name: value.detach() for name, value in report.items()}}

    def _captions(self, memory: Memory, strategy: Strategy) -> list[list[list[int]]]:
        """For each photo its captions in words, `<end>` behind those that ended.

        Nothing is forbidden: what could not be drawn would have a probability all the same.
        """
        longest = self.config.maximum_length
        found = decode(
            self.decoder,
            memory,
            start=Vocabulary.start,
            end=Vocabulary.end,
            strategy=strategy,
            constraints=Constraints(maximum_length=longest),
            keep_attention=False,
        )
        torch.clear_autocast_cache()  # See `scheduled_inputs`.
        return [
            [
                each.tokens if len(each.tokens) == longest else [*each.tokens, Vocabulary.end]
                for each in hypotheses
            ]
            for hypotheses in found
        ]

    def _log_probability(self, memory: Memory, captions: list[list[list[int]]]) -> Tensor:
        """log p (B, K) of captions as `_captions` gives them, with its gradient."""
        longest = max(len(caption) for each in captions for caption in each)
        shape = (len(captions), len(captions[0]), longest)
        targets = torch.full(shape, Vocabulary.pad)  # (B, K, T)
        mask = torch.zeros(shape, dtype=torch.bool)  # (B, K, T)
        for photo, each in enumerate(captions):
            for number, caption in enumerate(each):
                targets[photo, number, : len(caption)] = torch.tensor(caption)
                mask[photo, number, : len(caption)] = True
        device = memory.values.device
        targets, mask = targets.to(device), mask.to(device)
        first = targets.new_full((*shape[:2], 1), Vocabulary.start)  # (B, K, 1)
        inputs = torch.cat([first, targets[..., :-1]], dim=-1)  # (B, K, T)
        logits = self.decoder(memory, inputs).logits.flatten(end_dim=1)  # (B * K, T, V)
        lost = cross_entropy(logits, targets.flatten(end_dim=1), mask.flatten(end_dim=1))
        return -lost.view(shape[:2])  # (B, K)


@contextmanager
def _in_use(module: nn.Module) -> Iterator[None]:
    """In evaluation mode, and as before again."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
