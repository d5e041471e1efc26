"""The training objective: options, batches, and cross-entropy with its regularisers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from captioner.attention.memory import Memory
from captioner.attention.selection import sample
from captioner.devices import at_least_float32
from captioner.models.caption_decoder import CaptionDecoder, evaluation_mode
from captioner.models.cross_entropy import cross_entropies
from captioner.schema import Fraction, Length, Probability, Section
from captioner.vision.encoder import Encoder

Weight = Annotated[float, Field(ge=0, le=1e6)]  # A factor of a term of the loss.


class SelfCriticalConfig(Section):
    """Self-critical sequence training: see `SelfCriticalLoss`."""

    baseline: Literal["greedy", "new"] = "new"
    """what a sample's reward is compared with: greedy, that of greedy search (Rennie et al. 2017,
    equation 9), or new, the mean of the other samples (Luo 2020)"""
    samples: int = Field(5, ge=1, le=1_000, description="captions a photo; 2 or more with new")
    cross_entropy_weight: Weight = Field(0.0, description="of the photo's own caption")
    content_words_weight: Weight = 0.0
    """of the content words that a reference has less those that none has"""
    false_word_weight: Weight = Field(
        1.0, description="of a false content word to that of a true one"
    )
    fluency_weight: Weight = 0.0
    """of minus the share of bigrams and trigrams that nobody wrote in the training captions and
    data.texts; an English article before a plural counts as two"""
    maximum_length: Length = Field(20, description="words of a sample, which is cut off there")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.baseline == "new" and self.samples < 2:
            raise ValueError("samples 1 is not at least 2, as baseline 'new' needs")
        return self


class ObjectiveConfig(Section):
    """The training objective: Xu et al. 2015, section 4.

    With one draw a caption, the paper's, its reward is compared with the moving average of others;
    with more, with the mean of its other draws (Kool et al. 2019). The weights of hard attention
    are those of the authors' code.
    """

    doubly_stochastic: Weight = Field(1.0, description="lambda of equation 14; soft attention only")
    label_smoothing: Fraction = Field(0.0, description="probability spread over all words")
    grounding: Weight = 0.0
    """weight of the attention that misses what a word names, by data.instances (Liu et al. 2017);
    soft attention only, not in the paper"""
    reward_weight: Weight = Field(0.1, description="lambda_r after equation 12; hard attention")
    entropy_weight: Weight = Field(0.002, description="lambda_e after equation 12; hard attention")
    baseline_decay: Fraction = Field(0.9, description="of the moving average; hard attention only")
    semi_sampling: Probability = 0.5
    """probability of no draw, but the mean; hard attention only"""
    draws: int = Field(1, ge=1, le=10_000, description="of a caption's places; hard attention only")
    scheduled_sampling: Probability = 0.0
    """probability, at the end of training, that the decoder is fed its own word"""
    self_critical: SelfCriticalConfig | None = None
    """train on the reward of the decoder's own captions; soft attention only"""

    def check_selection(self, selection: str) -> None:
        """Raise `ValueError` for what hard attention does not train."""
        for name in ("grounding", "self_critical"):
            if selection == "hard" and getattr(self, name):
                reason = "is for soft attention, not decoder.selection hard"
                raise ValueError(f"objective.{name} {reason}")


class CaptioningBatch(NamedTuple):
    """The batch of one training step.

    source: annotation vectors (P, L, D) or, where the encoder is trained too, preprocessed photos
        (P, 3, height, width); P = B without `photos`.
    inputs: (B, T) fed words, `<start>` first. targets: (B, T) words to predict, `<end>` last.
    mask: (B, T) boolean, False for padding.
    seed: of all draws.
    rows: (B,) numbers of the photos in the data set, on the CPU; for rewards.
    progress: share of the training done before this batch, in [0, 1].
    photos: (B,) long, index into `source` of each caption's photo.
    places: (B, T, L) the share of each place inside what the word names, for `grounding_penalty`.
    share: of the step's captions that are in this part; 0 for a fully masked dummy.
    """

    source: Tensor
    inputs: Tensor
    targets: Tensor
    mask: Tensor
    seed: int = 0
    rows: Tensor | None = None
    progress: float = 0.0
    photos: Tensor | None = None
    places: Tensor | None = None
    share: float = 1.0

    def to(self, device: torch.device | str) -> CaptioningBatch:
        """Move the batch to a device, the source as float32."""
        moved: dict[str, Any] = {
            name: tensor.to(device, non_blocking=True)
            for name, tensor in self._asdict().items()
            if isinstance(tensor, Tensor) and name != "rows"
        }
        moved["source"] = moved["source"].float()  # Stored as float16.
        return self._replace(**moved)

    def annotations(self, encoder: Encoder | None) -> Tensor:
        """The annotation vectors (B, L, D) of the captions. encoder: of a `source` of photos."""
        vectors = self.source if encoder is None else encoder(self.source)  # (P, L, D)
        if self.photos is None:
            return vectors
        # The gradient of `index_select` is deterministic with several threads of a CPU.
        if vectors.device.type == "cpu":
            return vectors.index_select(0, self.photos)
        return vectors[self.photos]


class CaptioningLoss(nn.Module):
    """Cross-entropy with its regularisers, for soft attention. encoder: trained too if given."""

    selection: ClassVar[str] = "soft"

    def __init__(
        self, decoder: CaptionDecoder, objective: ObjectiveConfig, encoder: Encoder | None = None
    ) -> None:
        super().__init__()
        assert decoder.config.selection == self.selection
        objective.check_selection(self.selection)
        self.decoder = decoder
        self.encoder = encoder
        self.objective = objective

    def loss(self, batch: CaptioningBatch) -> dict[str, Tensor]:
        """The loss of a batch under the key `loss`, and quantities to report.

        `loss`: mean over captions of Xu et al. 2015, equation 14, in nats a caption.
        `cross_entropy`: nats a word, without smoothing or regularisation. `grounding`, of a batch
        with `places`: nats a word that names something.
        """
        return self.cross_entropy_loss(batch, batch.annotations(self.encoder))

    def cross_entropy_loss(self, batch: CaptioningBatch, annotations: Tensor) -> dict[str, Tensor]:
        """`loss`, given the annotation vectors (B, L, D) of the batch."""
        objective = self.objective
        memory = self.decoder.remember(annotations)
        forced = self.decoder(memory, self.fed_words(batch, memory).unsqueeze(1))  # K = 1
        logits = forced.logits.squeeze(1)  # (B, T, V)
        weights = forced.weights.squeeze(1)  # (B, T, L)
        smoothing = objective.label_smoothing
        loss, plain = cross_entropies(logits, batch.targets, batch.mask, smoothing)  # (B,) each
        if objective.doubly_stochastic > 0:
            penalty = doubly_stochastic_penalty(weights, batch.mask)  # (B,)
            loss = loss + objective.doubly_stochastic * penalty
        words = batch.mask.sum().clamp(min=1)
        report = {"cross_entropy": plain.sum() / words}
        if batch.places is not None:
            missed = grounding_penalty(weights, batch.places)  # (B,)
            loss = loss + objective.grounding * missed
            named = batch.places.any(dim=-1).sum().clamp(min=1)
            report["grounding"] = missed.detach().sum() / named
        return {"loss": loss.mean(), **report}

    @torch.no_grad()
    def fed_words(self, batch: CaptioningBatch, memory: Memory) -> Tensor:
        """The words (B, T) to feed: the batch's inputs, after scheduled sampling.

        Bengio et al. 2015, section 2.4. Each word after `<start>` is replaced, independently and
        with a probability that rises with `progress`, by one drawn from the decoder's distribution
        after the words fed so far, in evaluation mode. No gradient passes through a drawn word.
        """
        inputs = batch.inputs
        probability = self.objective.scheduled_sampling * batch.progress
        if probability == 0:
            return inputs
        generator = torch.Generator(inputs.device).manual_seed(batch.seed ^ _SAMPLING_SEED)
        with evaluation_mode(self.decoder):
            fed = [inputs[:, :1]]  # (B, 1) each
            state: object = self.decoder.start(memory)
            for time in range(1, inputs.shape[1]):
                step = self.decoder.step(fed[-1], state)
                state = step.state
                probabilities = torch.softmax(step.logits[:, 0].float(), dim=-1)  # (B, V)
                drawn = sample(probabilities, generator).unsqueeze(1)  # (B, 1)
                chance = torch.rand(drawn.shape, generator=generator, device=inputs.device)
                fed.append(torch.where(chance < probability, drawn, inputs[:, time : time + 1]))
        # Torch before about 2.11 caches on GPUs the weights that autocast casts here, without a
        # gradient, and reuses them in the forward pass: pytorch issue 112583.
        torch.clear_autocast_cache()
        return torch.cat(fed, dim=1)  # (B, T)


_SAMPLING_SEED = 0x5343484544
"""XORed with a batch's seed: scheduled sampling and hard attention draw different numbers."""


def doubly_stochastic_penalty(weights: Tensor, mask: Tensor) -> Tensor:
    """Sum over positions of (1 - sum_t alpha)^2: (B,). Xu et al. 2015, equation 14.

    weights (B, T, L), mask (B, T) boolean, False for padding, whose attention is left out.
    """
    weights = at_least_float32(weights)
    mass = (weights * mask.unsqueeze(-1)).sum(dim=1)  # (B, L)
    return (1.0 - mass).square().sum(dim=1)


def grounding_penalty(weights: Tensor, places: Tensor) -> Tensor:
    """Minus the log of the attention inside what each word names, over words: (B,).

    weights (B, T, L). places (B, T, L): the share of each place inside; 0 everywhere for a word
    that names nothing, which is left out. After Liu et al. 2017, *Attention Correctness in Neural
    Image Captioning*, section 3.3, but the attention need not be even inside.
    """
    weights = at_least_float32(weights)
    named = places.amax(dim=-1) > 0  # (B, T)
    inside = (weights * places).sum(dim=-1)  # (B, T)
    floor = torch.finfo(weights.dtype).tiny
    return -(inside.where(named, 1.0).clamp(min=floor).log()).sum(dim=-1)
