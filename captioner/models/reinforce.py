"""The losses with the gradient of REINFORCE: hard attention, and self-critical training."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioner.attention.memory import Memory
from captioner.decoding.loop import BeamSearch, Sampling, Strategy, decode
from captioner.decoding.options import AnySearch
from captioner.decoding.rules import Constraints
from captioner.models.caption_decoder import CaptionDecoder, evaluation_mode
from captioner.models.caption_losses import CaptioningBatch, CaptioningLoss, ObjectiveConfig
from captioner.models.cross_entropy import cross_entropies
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.text.token_batches import decoder_inputs
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import Encoder


class HardAttentionLoss(CaptioningLoss):
    """The lower bound on log p(y | a) of hard attention, with its gradient. Section 4.1.

    L_s = sum_s p(s | a) log p(y | s, a), equation 10, estimated by one draw s of a position for
    each word of a caption; the gradient is the paper's learning rule, which follows equation 12.
    Choices that the paper leaves open:

    - The reward of a draw is log p(y | s, a) of the whole caption, the same for each of its
      positions. With label smoothing it is, in the baseline too, minus the smoothed cross-entropy.
    - The baseline b is in nats a word, and a caption of T words is compared with T b, as longer
      captions are less probable; for captions of one length this is the paper's. It starts at
      -log V, the value of an untrained decoder, and is updated after use, from the captions drawn
      in the batch: a draw compared with itself would bias the gradient.
    - With several draws a caption each is compared with the mean of the others instead of b.
    - The entropy is that of each word's distribution over positions, given the earlier draws.
    - Semi-sampling is drawn once a caption. A caption with expected values has no draw, no score
      function and no part in the baseline: its gradient is that of soft attention.
    """

    selection = "hard"
    decoder: ShowAttendTellDecoder
    baseline: Tensor  # A buffer, so that checkpoints contain it.

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
        caption; its gradient is minus the learning rule. `cross_entropy`, without smoothing,
        `entropy`, over positions, and `baseline`, before this batch: nats a word.
        """
        device = batch.inputs.device
        generator = torch.Generator(device).manual_seed(batch.seed)
        draws = self.objective.draws  # N, rows of a source
        chance = torch.rand(len(batch.inputs), generator=generator, device=device)  # (B,)
        expected = (chance < self.objective.semi_sampling).unsqueeze(1).expand(-1, draws)  # (B, N)
        memory = self.decoder.remember(batch.annotations(self.encoder))
        fed = self.fed_words(batch, memory).unsqueeze(1).expand(-1, draws, -1)  # (B, N, T)
        forced = self.decoder(memory, fed, generator, expected)
        mask = batch.mask.unsqueeze(1)  # (B, 1, T)
        targets = batch.targets.unsqueeze(1).expand(-1, draws, -1)  # (B, N, T)
        smoothing = self.objective.label_smoothing
        loss, plain = cross_entropies(forced.logits, targets, mask, smoothing)  # (B, N) each
        words = mask.sum(dim=2)  # (B, 1)
        entropy = (forced.entropy * mask).sum(dim=2)  # (B, N)
        log_draw = (forced.log_probability * mask).sum(dim=2)  # (B, N), log p(s | a)
        gradient_only = log_draw - log_draw.detach()  # (B, N), zeros
        reward = -loss.detach()  # (B, N)
        baseline = self.baseline.clone()
        expected_reward = words * baseline  # (B, 1)
        if draws > 1:
            expected_reward = _mean_of_others(reward)  # (B, N)
        advantage = (reward - expected_reward).masked_fill(expected, 0.0)  # (B, N)
        objective = self.objective.reward_weight * advantage * gradient_only - loss  # (B, N)
        objective = objective + self.objective.entropy_weight * entropy
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
        """b <- d b + (1 - d) log p(y | s, a) a word, over the draws (B, N) of all ranks.

        d is `baseline_decay`; a caption that took the expected value has no draw.
        """
        sums = torch.stack([(reward * drawn).sum(), (words * drawn).sum().to(reward.dtype)])  # (2,)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        total, count = sums.unbind()
        decay = self.objective.baseline_decay
        new = decay * self.baseline + (1 - decay) * total / count.clamp(min=1)
        self.baseline.copy_(torch.where(count > 0, new, self.baseline))


Reward = Callable[[Tensor, Sequence[Sequence[Sequence[int]]]], Tensor]
"""Rows (B,) of photos and K captions of each, as tokens, `<end>` included -> rewards (B, K)."""


def _mean_of_others(rewards: Tensor) -> Tensor:
    """The mean of the other samples' rewards, of each of N >= 2: (B, N)."""
    return (rewards.sum(dim=1, keepdim=True) - rewards) / (rewards.shape[1] - 1)


class SelfCriticalLoss(CaptioningLoss):
    """Minus the expected reward of generated captions, with the gradient of REINFORCE.

    Rennie et al. 2017, *Self-Critical Sequence Training for Image Captioning*, sections 3 and 4;
    Luo 2020, *A Better Variant of Self-Critical Sequence Training*, section 2.

    Samples captions of each photo, without a gradient, and rewards them. Teacher forcing then gives
    their log-probabilities; the gradient is that of -(r - b) log p with reward r and baseline b,
    Rennie et al., equation 7. log p includes the end token, except for captions cut at the maximum
    length, which did not draw it. Both passes run without dropout, so that the gradient is in
    expectation that of the expected reward.
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
        reference captions; only its gradient has a meaning. `reward`, `length`, `finished` (before
        the maximum): means over the samples. `greedy_reward`: where it is the baseline.
        """
        config = self.config
        assert batch.rows is not None
        annotations = batch.annotations(self.encoder)
        device = annotations.device
        with evaluation_mode(self.decoder):
            memory = self.decoder.remember(annotations)
            generator = torch.Generator(device).manual_seed(batch.seed)
            sampling = Sampling(AnySearch(sample=True, n_best=config.samples), generator)
            samples = self._captions(memory, sampling)
            rewards = self.reward(batch.rows, samples).to(device, non_blocking=True)  # (B, K)
            report = {"reward": rewards.mean()}
            if config.baseline == "greedy":
                greedy = self._captions(memory, BeamSearch(1))
                baseline = self.reward(batch.rows, greedy).to(device, non_blocking=True)  # (B, 1)
                report["greedy_reward"] = baseline.mean()
            else:
                baseline = _mean_of_others(rewards)  # (B, K)
            log_probability = self._log_probability(memory, samples)  # (B, K)
        loss = -((rewards - baseline) * log_probability).mean()
        if config.cross_entropy_weight > 0:
            plain = self.cross_entropy_loss(batch, annotations)
            loss = loss + config.cross_entropy_weight * plain["loss"]
            report.update((name, value) for name, value in plain.items() if name != "loss")
        captions = [caption for of_photo in samples for caption in of_photo]
        ended = sum(caption[-1:] == [Vocabulary.end] for caption in captions)
        words = sum(map(len, captions)) - ended
        report["length"] = torch.full((), words / len(captions), device=device)
        report["finished"] = torch.full((), ended / len(captions), device=device)
        return {"loss": loss, **{name: value.detach() for name, value in report.items()}}

    def _captions(self, memory: Memory, strategy: Strategy) -> list[list[list[int]]]:
        """Generate captions of each photo, as tokens; `<end>` is the last of those that ended."""
        longest = self.config.maximum_length  # The only limit: no token has a probability of 0.
        decoded = decode(
            self.decoder,
            memory,
            start=Vocabulary.start,
            end=Vocabulary.end,
            strategy=strategy,
            constraints=Constraints(AnySearch(minimum_length=0, maximum_length=longest)),
            keep_attention=False,
        )
        torch.clear_autocast_cache()  # See `fed_words`.
        return [
            [[*hypothesis.tokens, Vocabulary.end][:longest] for hypothesis in hypotheses]
            for hypotheses in decoded
        ]

    def _log_probability(self, memory: Memory, captions: list[list[list[int]]]) -> Tensor:
        """log p (B, K) of the captions of `_captions`, with its gradient."""
        rows = [torch.tensor(caption) for of_photo in captions for caption in of_photo]
        padded = pad_sequence(rows, batch_first=True, padding_value=-1)  # (B * K, T)
        padded = padded.to(memory.values.device, non_blocking=True)
        targets = padded.clamp(min=0).view(len(captions), -1, padded.shape[1])  # (B, K, T)
        logits = self.decoder(memory, decoder_inputs(targets)).logits  # (B, K, T, V)
        return -cross_entropies(logits, targets, padded.view_as(targets) >= 0)[0]  # (B, K)
