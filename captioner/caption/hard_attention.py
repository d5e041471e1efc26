"""The loss of hard attention: REINFORCE over drawn positions. Xu et al. 2015, section 4.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from captioner.caption.losses import CaptioningBatch, CaptioningLoss, ObjectiveConfig
from captioner.caption.lstm import ShowAttendTellDecoder
from captioner.decoding import cross_entropies
from captioner.vision.encoder import Encoder


class HardAttentionLoss(CaptioningLoss):
    """The lower bound on log p(y | a) of hard attention, with its gradient.

    L_s = sum_s p(s | a) log p(y | s, a), equation 10, estimated by one draw s of a position for
    each word of a caption; the gradient is the paper's learning rule, which follows equation 12.
    Choices that the paper leaves open:

    - The reward of a draw is log p(y | s, a) of the whole caption without padding, the same for
      each of its positions. Label smoothing applies to all of equation 10: log p(y | s, a) is then,
      in the baseline too, minus the smoothed cross-entropy.
    - The baseline b is in nats a word, and a caption of T words is compared with T b, as longer
      captions are less probable. For captions of one length, as in the authors' code, this is the
      paper's. It is updated after use, from the captions drawn in the batch: a draw compared with
      itself would bias the gradient. It starts at -log V, the value of an untrained decoder. Where
      gradients are accumulated it is updated after each part.
    - With several draws a caption (`ObjectiveConfig.draws`) each is compared with the mean of the
      others instead of b.
    - The entropy is that of each word's distribution over positions, given the earlier draws.
    - Semi-sampling is drawn once a caption. A caption with expected values has no draw, no score
      function and no part in the baseline: its gradient is that of soft attention. (In the
      authors' code its score function is sample / alpha = 1 everywhere, which softmax maps to 0.)

    baseline: a buffer, so that checkpoints contain it.
    """

    selection = "hard"
    decoder: ShowAttendTellDecoder
    baseline: Tensor

    def __init__(
        self,
        decoder: ShowAttendTellDecoder,
        objective: ObjectiveConfig,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(decoder, objective, encoder)
        words = decoder.embedding.num_embeddings
        self.register_buffer("baseline", torch.tensor(-math.log(words)))

    def loss(self, batch: CaptioningBatch) -> dict[str, Tensor]:
        """The loss of a batch under the key `loss`, and quantities to report.

        `loss`: mean over captions of minus the lower bound, less the entropy term, in nats a
            caption; its gradient is minus the learning rule. `cross_entropy`: nats a word, without
            smoothing. `entropy`: of the distribution over positions, nats a word. `baseline`:
            before this batch, nats a word.

        Draws come from the batch's seed, on the device of the batch.
        """
        device = batch.inputs.device
        generator = torch.Generator(device).manual_seed(batch.seed)
        expected = (
            torch.rand(len(batch.inputs), generator=generator, device=device)
            < self.objective.semi_sampling
        )  # (B,)
        annotations = batch.annotations(self.encoder)
        memory = self.decoder.remember(annotations)
        fed = self.fed_words(batch, memory)  # (B, T)
        draws = self.objective.draws  # N, rows of a source
        expected = expected.unsqueeze(1).expand(-1, draws)  # (B, N)
        forced = self.decoder(memory, fed.unsqueeze(1).expand(-1, draws, -1), generator, expected)
        assert forced.log_probability is not None
        assert forced.entropy is not None
        mask = batch.mask.unsqueeze(1)  # (B, 1, T)
        entropies = cross_entropies(
            forced.logits.flatten(end_dim=1),  # (B * N, T, V)
            batch.targets.repeat_interleave(draws, dim=0),
            batch.mask.repeat_interleave(draws, dim=0),
            self.objective.label_smoothing,
        )
        loss, plain = (each.view(-1, draws) for each in entropies)  # (B, N) each
        words = mask.sum(dim=2)  # (B, 1)
        entropy = (forced.entropy * mask).sum(dim=2)  # (B, N)
        log_draw = (forced.log_probability * mask).sum(dim=2)  # (B, N), log p(s | a)
        gradient_only = log_draw - log_draw.detach()  # (B, N), zeros
        reward = -loss.detach()  # (B, N)
        baseline = self.baseline.clone()
        expected_reward = words * baseline  # (B, 1)
        if draws > 1:
            expected_reward = (reward.sum(dim=1, keepdim=True) - reward) / (draws - 1)  # (B, N)
        advantage = (reward - expected_reward).masked_fill(expected, 0.0)  # (B, N)
        objective = (
            -loss
            + self.objective.reward_weight * advantage * gradient_only
            + self.objective.entropy_weight * entropy
        )  # (B, N)
        if self.training:
            self._update_baseline(reward, words, ~expected)
        total = draws * batch.mask.sum().clamp(min=1)
        return {
            "loss": -objective.mean(),
            "cross_entropy": plain.sum() / total,
            "entropy": (entropy.sum() / total).detach(),
            "baseline": baseline,
        }

    @torch.no_grad()
    def _update_baseline(self, reward: Tensor, words: Tensor, drawn: Tensor) -> None:
        """b_k = 0.9 b_{k-1} + 0.1 log p(y | s, a), a word. reward, drawn (B, N), words (B, 1).

        The mean is over all ranks. A batch without a draw does not change the baseline.
        """
        sums = torch.stack([(reward * drawn).sum(), (words * drawn).sum().to(reward.dtype)])  # (2,)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        total, count = sums.unbind()
        decay = self.objective.baseline_decay
        new = decay * self.baseline + (1 - decay) * total / count.clamp(min=1)
        self.baseline.copy_(torch.where(count > 0, new, self.baseline))
