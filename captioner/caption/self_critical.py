"""Self-critical sequence training: rewards captions by the metric that scores them.

Rennie et al. 2017, *Self-Critical Sequence Training for Image Captioning*, sections 3 and 4;
Luo 2020, *A Better Variant of Self-Critical Sequence Training*, section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from captioner.attention import Memory
from captioner.caption.base import CaptionDecoder, evaluation_mode
from captioner.caption.losses import CaptioningBatch, CaptioningLoss, ObjectiveConfig
from captioner.decoding import BeamSearch, Constraints, Sampling, Strategy, cross_entropies, decode
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import Encoder

Reward = Callable[[Tensor, Sequence[Sequence[Sequence[int]]]], Tensor]
"""Maps the rows (B,) of photos and K captions of each, as tokens, to rewards (B, K).

`<end>` is the last token of captions that ended.
"""


class SelfCriticalLoss(CaptioningLoss):
    """Minus the expected reward of generated captions, with the gradient of REINFORCE.

    Samples captions of each photo with the decoder loop, without a gradient, and rewards them.
    Teacher forcing then gives their log-probabilities; the gradient is that of -(r - b) log p with
    reward r and baseline b, Rennie et al. 2017, equation 7. log p includes the end token, except
    for captions cut at the maximum length, which did not draw it.

    Both passes run without dropout, so that the gradient is in expectation that of the expected
    reward. An encoder that is trained too stays in training mode for both.

    reward: see `Reward`.
    """

    def __init__(
        self,
        decoder: CaptionDecoder,
        objective: ObjectiveConfig,
        reward: Reward,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(decoder, objective, encoder)
        assert objective.self_critical is not None
        self.config = objective.self_critical
        self.reward = reward

    def loss(self, batch: CaptioningBatch) -> dict[str, Tensor]:
        """The loss of a batch under the key `loss`, and quantities to report.

        `loss`: mean over photos and samples of -(r - b) log p, plus the weighted loss of the
            reference captions; only its gradient has a meaning. `reward`: mean over the samples.
            `greedy_reward`: of greedy search, where it is the baseline. `length`: mean of the
            samples, in words. `finished`: share of the samples that ended before the maximum.
        """
        config = self.config
        assert batch.rows is not None
        annotations = batch.annotations(self.encoder)
        device = annotations.device
        with evaluation_mode(self.decoder):
            memory = self.decoder.remember(annotations)
            generator = torch.Generator(device).manual_seed(batch.seed)
            samples = self._captions(memory, Sampling(generator, config.samples))
            rewards = self.reward(batch.rows, samples).to(device, non_blocking=True)  # (B, K)
            report = {"reward": rewards.mean()}
            if config.baseline == "greedy":
                baseline = self.reward(batch.rows, self._captions(memory, BeamSearch(1)))
                baseline = baseline.to(device, non_blocking=True)  # (B, 1)
                report["greedy_reward"] = baseline.mean()
            else:
                others = rewards.sum(dim=1, keepdim=True) - rewards  # (B, K)
                baseline = others / (config.samples - 1)  # (B, K)
            log_probability = self._log_probability(memory, samples)  # (B, K)
        loss = -((rewards - baseline) * log_probability).mean()
        if config.cross_entropy_weight > 0:
            plain = self.cross_entropy_loss(batch, annotations)
            loss = loss + config.cross_entropy_weight * plain["loss"]
            report.update((name, value) for name, value in plain.items() if name != "loss")
        ended = [caption[-1:] == [Vocabulary.end] for each in samples for caption in each]
        words = sum(len(caption) for each in samples for caption in each) - sum(ended)
        report["length"] = torch.full((), words / len(ended), device=device)
        report["finished"] = torch.full((), sum(ended) / len(ended), device=device)
        return {"loss": loss, **{name: value.detach() for name, value in report.items()}}

    def _captions(self, memory: Memory, strategy: Strategy) -> list[list[list[int]]]:
        """Generate captions of each photo, as tokens; `<end>` is the last of those that ended.

        No token is forbidden: the model's probability of a forbidden token is not 0.
        """
        longest = self.config.maximum_length
        decoded = decode(
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
            for hypotheses in decoded
        ]

    def _log_probability(self, memory: Memory, captions: list[list[list[int]]]) -> Tensor:
        """Compute log p (B, K) of the captions of `_captions`, with its gradient."""
        rows = [torch.tensor(caption) for each in captions for caption in each]
        targets = pad_sequence(rows, batch_first=True)  # (B * K, T)
        lengths = torch.tensor([[len(row)] for row in rows])  # (B * K, 1)
        mask = torch.arange(targets.shape[1]) < lengths  # (B * K, T)
        device = memory.values.device
        targets, mask = (each.to(device, non_blocking=True) for each in (targets, mask))
        inputs = functional.pad(targets[:, :-1], (1, 0), value=Vocabulary.start)  # (B * K, T)
        inputs = inputs.view(len(captions), -1, inputs.shape[1])  # (B, K, T)
        logits = self.decoder(memory, inputs).logits.flatten(end_dim=1)  # (B * K, T, V)
        return -cross_entropies(logits, targets, mask).smoothed.view(inputs.shape[:2])  # (B, K)
