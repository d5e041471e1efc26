"""Hard attention's objective: REINFORCE over the places looked at. Xu et al. 2015, section 4.1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.caption.objective import ObjectiveConfig
from captioner.caption.training import CaptioningBatch, fed_words
from captioner.decoding import CrossEntropies, cross_entropies
from captioner.errors import UserError
from captioner.vision.encoder import Encoder


class HardAttentionLoss(nn.Module):
    """The lower bound on log p(y | a) of hard attention, with the gradient of equation 12.

    L_s = sum_s p(s | a) log p(y | s, a), equation 10, estimated by one draw s of a place for every
    word of a caption. Where equation 12 leaves room:

    - The reward of a draw is log p(y | s, a) of the whole caption, padding left out, and it is the
      reward of each of the caption's places. With label smoothing all of equation 10 is smoothed:
      log p(y | s, a) is then, here and in the baseline, minus the smoothed cross-entropy.
    - With several draws for each caption (`ObjectiveConfig.draws`) a draw is held against the mean
      of the others and not against b; what follows is of a single one.
    - The baseline b is kept in nats a word, and a caption of T words is held against T b: longer
      captions are less probable whatever is looked at. Where all captions of a batch are of one
      length, as the authors had them, this is the paper's. It is updated after its use, from the
      drawn captions of the batch, so that no draw is held against itself, which would bias the
      gradient; and it starts where a decoder does that knows nothing, at -log V. Where a batch is
      cut into parts whose gradients are added up, all of them are held against the baseline from
      before the first, and it is updated once, by the captions of all.
    - The entropy is that of each word's distribution over places, given the places drawn before.
    - Semi-sampling is drawn for each caption, for all its words. A caption that is given the
      expected values has no draw, hence no score function and no part in the baseline: its
      gradient is soft attention's. (So it is in the authors' code, where the score function is
      sample / alpha, there 1 at every place, which softmax lets through as 0.)

    baseline: a buffer, so that checkpoints keep it; between two steps there is nothing else to
    keep. encoder: given when it is trained together with the decoder, from photos.
    Raises `UserError` for a soft-attention decoder, and for fields of the objective that are of
    soft attention.
    """

    baseline: Tensor

    def __init__(
        self,
        decoder: ShowAttendTellDecoder,
        objective: ObjectiveConfig,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        if decoder.config.selection != "hard":
            raise UserError("REINFORCE trains hard attention; soft attention draws nothing")
        objective.check_selection("hard")
        self.decoder = decoder
        self.encoder = encoder
        self.objective = objective
        words = decoder.embedding.num_embeddings
        self.register_buffer("baseline", torch.tensor(-math.log(words)))
        self._step: _Step | None = None

    def loss(self, batch: CaptioningBatch) -> dict[str, Tensor]:
        """The loss of a batch under the key `loss`, and what to report beside it.

        `loss`: mean over captions of minus the lower bound, less the entropy term, in nats a
            caption; its gradient is minus equation 12. `cross_entropy`: nats a word, without
            smoothing. `entropy`: of the distribution over places, nats a word. `baseline`: before
            this step, nats a word.

        A batch is taken for a further part of the one before where the decoder has gradients, to
        which its own will be added, and the same weights still. Draws are made from the batch's
        seed, on the device of the batch.
        """
        device = batch.inputs.device
        generator = torch.Generator(device).manual_seed(batch.seed)
        expected = (
            torch.rand(len(batch.inputs), generator=generator, device=device)
            < self.objective.semi_sampling
        )  # (B,)
        annotations = batch.annotations(self.encoder)
        memory = self.decoder.remember(annotations)
        fed = fed_words(self.decoder, memory, self.objective, batch)  # (B, T)
        draws = self.objective.draws  # N, rows of a source
        expected = expected.unsqueeze(1).expand(-1, draws)  # (B, N)
        said = self.decoder(memory, fed.unsqueeze(1).expand(-1, draws, -1), generator, expected)
        assert said.log_probability is not None
        assert said.entropy is not None
        mask = batch.mask.unsqueeze(1)  # (B, 1, T)
        loss, plain = self._cross_entropies(said.logits, batch)  # (B, N) each
        words = mask.sum(dim=2)  # (B, 1)
        entropy = (said.entropy * mask).sum(dim=2)  # (B, N)
        log_draw = (said.log_probability * mask).sum(dim=2)  # (B, N), log p(s | a)
        reward = -loss.detach()  # (B, N)
        baseline = self._baseline_of_step() if self.training else self.baseline.clone()
        held_against = words * baseline  # (B, 1)
        if draws > 1:
            held_against = (reward.sum(dim=1, keepdim=True) - reward) / (draws - 1)  # (B, N)
        advantage = (reward - held_against).masked_fill(expected, 0.0)  # (B, N)
        objective = (
            -loss
            + self.objective.reward_weight * advantage * _gradient_only(log_draw)
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

    def _cross_entropies(self, logits: Tensor, batch: CaptioningBatch) -> CrossEntropies:
        """Of each draw's logits (B, N, T, V): (B, N) each, in nats a caption."""
        draws = logits.shape[1]
        targets, mask = (
            tensor.unsqueeze(1).expand(-1, draws, -1).flatten(end_dim=1)
            for tensor in (batch.targets, batch.mask)
        )  # (B * N, T)
        smoothing = self.objective.label_smoothing
        lost = cross_entropies(logits.flatten(end_dim=1), targets, mask, smoothing)  # (B * N,)
        return CrossEntropies(lost.smoothed.view(-1, draws), lost.plain.view(-1, draws))

    def _baseline_of_step(self) -> Tensor:
        """The baseline before the step that a batch is of, which begins here or is under way."""
        parameters = list(self.decoder.parameters())
        versions = [parameter._version for parameter in parameters]  # An optimiser counts them up.
        adding_up = any(parameter.grad is not None for parameter in parameters)
        if self._step is None or not adding_up or self._step.versions != versions:
            nothing = torch.zeros_like(self.baseline)
            self._step = _Step(versions, self.baseline.clone(), nothing, nothing)
        return self._step.baseline

    @torch.no_grad()
    def _update_baseline(self, reward: Tensor, words: Tensor, drawn: Tensor) -> None:
        """b_k = 0.9 b_{k-1} + 0.1 log p(y | s, a), a word; the three are (B, N), words (B, 1).

        The mean is over the parts of the step so far, of all processes, so that it is the same to
        all. A step without a draw leaves it as it is.
        """
        count = (words * drawn).sum()
        total = (reward * drawn).sum()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            sums = torch.stack([total, count.to(total.dtype)])  # (2,)
            torch.distributed.all_reduce(sums)
            total, count = sums.unbind()
        step = self._step
        assert step is not None
        step.reward, step.words = step.reward + total, step.words + count
        decay = self.objective.baseline_decay
        mean = step.reward / step.words.clamp(min=1)
        new = decay * step.baseline + (1 - decay) * mean
        self.baseline.copy_(torch.where(step.words > 0, new, step.baseline))


@dataclass
class _Step:
    """What the parts of one step of the optimiser have in common.

    versions: torch's counts of changes of the decoder's parameters. baseline: before the first
    part. reward, words: sums over the captions drawn so far, of all processes. Scalars.
    """

    versions: list[int]
    baseline: Tensor
    reward: Tensor
    words: Tensor


def _gradient_only(tensor: Tensor) -> Tensor:
    """Zero, with the tensor's gradient."""
    return tensor - tensor.detach()
