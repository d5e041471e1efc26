"""The training objective: its options, batches, the cross-entropy loss and its regularisers.

Xu et al. 2015, section 4.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from captioner.attention.memory import Memory
from captioner.attention.selection import draw
from captioner.caption.base import CaptionDecoder, evaluation_mode
from captioner.decoding.protocol import cross_entropies
from captioner.devices import at_least_float32
from captioner.errors import UserError
from captioner.schema import Config, Fraction, Length, Probability
from captioner.vision.encoder import Encoder

Weight = Annotated[float, Field(ge=0, le=1e6)]
"""Of a term of the loss."""


class SelfCriticalConfig(Config):
    """Self-critical sequence training: see `captioner.caption.reinforce`."""

    removed: ClassVar[dict[str, str]] = {
        "word_precision_weight": "use content_words_weight, which does not reward short captions"
    }

    baseline: Literal["greedy", "new"] = Field(
        "new",
        description="what a sample's reward is compared with: greedy, that of greedy search "
        "(Rennie et al. 2017, equation 9), or new, the mean of the other samples (Luo 2020)",
    )
    samples: int = Field(
        5, ge=1, le=10_000, description="captions drawn for each photo; 2 or more with new"
    )
    cross_entropy_weight: Weight = Field(
        0.0, description="weight of the cross-entropy of the photo's own caption"
    )
    content_words_weight: Weight = Field(
        0.0,
        description="weight, beside CIDEr-D, of the content words that a reference has less those "
        "that none has",
    )
    fluency_weight: Weight = Field(
        0.0,
        description="weight, beside CIDEr-D, of minus the share of bigrams and trigrams that "
        "nobody wrote in the training captions and data.texts; an English article before a plural "
        "counts as two",
    )
    maximum_length: Length = Field(20, description="words of a sample, which is cut off there")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.baseline == "new" and self.samples < 2:
            raise ValueError(f"samples {self.samples} is not at least 2, as baseline 'new' needs")
        return self


class ObjectiveConfig(Config):
    """The training objective: Xu et al. 2015, section 4.

    With one draw a caption, the paper's, its reward is compared with the moving average of others;
    with more, with the mean of its other draws, which removes nearly all of the noise (Kool et al.
    2019). The weights of hard attention are those of the authors' code.
    """

    removed: ClassVar[dict[str, str]] = {
        "doubly_stochastic_target": "leave it out; a place's attention is to sum to 1"
    }

    doubly_stochastic: Weight = Field(1.0, description="lambda of equation 14; soft attention only")
    label_smoothing: Fraction = Field(
        0.0, description="probability spread over all words (Szegedy et al. 2016)"
    )
    grounding: Weight = Field(
        0.0,
        description="weight of the attention that misses what a word names, by data.instances "
        "(Liu et al. 2017); soft attention only, not in the paper",
    )
    reward_weight: Weight = Field(
        0.1, description="lambda_r of the rule after equation 12; hard attention only"
    )
    entropy_weight: Weight = Field(
        0.002, description="lambda_e of the rule after equation 12; hard attention only"
    )
    baseline_decay: Fraction = Field(
        0.9, description="share of the baseline kept at an update; hard attention only"
    )
    semi_sampling: Probability = Field(
        0.5, description="probability of no draw, but the mean; hard attention only"
    )
    draws: int = Field(
        1, ge=1, le=10_000, description="draws of a caption's places; hard attention only"
    )
    scheduled_sampling: Probability = Field(
        0.0,
        description="probability, reached at the end of training, that the decoder is fed its own "
        "word (Bengio et al. 2015)",
    )
    self_critical: SelfCriticalConfig | None = Field(
        None, description="train on the reward of the decoder's own captions; soft attention only"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.self_critical is not None and self.self_critical.cross_entropy_weight == 0:
            for name in ("label_smoothing", "scheduled_sampling", "grounding"):
                if getattr(self, name) > 0:
                    raise ValueError(
                        f"{name} has no effect: self_critical.cross_entropy_weight is 0"
                    )
        return self

    def check_selection(self, selection: str) -> None:
        """Raise `UserError` naming a field that was set for the other kind of attention."""
        other = "hard" if selection == "soft" else "soft"
        for name in _FIELDS_FOR[other]:
            if getattr(self, name) not in (type(self).model_fields[name].default, 0):
                raise UserError(
                    f"objective.{name} is for {other} attention, and decoder.selection is "
                    f"{selection}: leave it out"
                )


_FIELDS_FOR = {
    "soft": ("doubly_stochastic", "grounding", "self_critical"),
    "hard": ("reward_weight", "entropy_weight", "baseline_decay", "semi_sampling", "draws"),
}


class CaptioningBatch(NamedTuple):
    """The batch of one training step.

    source: annotation vectors (B, L, D), or preprocessed photos (B, 3, height, width) where the
        encoder is trained too; fewer than B with `photos`.
    inputs: (B, T) fed words, `<start>` first. targets: (B, T) words to predict, `<end>` last.
    mask: (B, T) boolean, False for padding.
    seed: of the batch's draws: positions of hard attention, words of scheduled sampling, captions
        of self-critical training.
    rows: (B,) numbers of the photos in the data set, on the CPU; for rewards.
    progress: share of the training done before this batch, in [0, 1].
    photos: (B,) long, index into `source` of each caption's photo, where several captions share
        a photo. None where `source` has B photos.
    places: (B, T, L) the share of each place inside what the word names, for
        `ObjectiveConfig.grounding`; 0 for a word that names nothing.
    share: that of the step's captions; 0 of a fully masked dummy.
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
        """The annotation vectors (B, L, D) of every caption's photo.

        encoder: encodes each photo once; None where `source` is annotation vectors.
        """
        vectors: Tensor = self.source if encoder is None else encoder(self.source)  # (P, L, D)
        if self.photos is None:
            return vectors
        if vectors.device.type == "cpu":  # Its gradient is deterministic with several threads.
            return vectors.index_select(0, self.photos)  # (B, L, D)
        return vectors[self.photos]  # (B, L, D)


class CaptioningLoss(nn.Module):
    """Cross-entropy with doubly stochastic regularisation, for soft attention.

    encoder: given when it is trained together with the decoder, from photos.
    """

    selection: ClassVar[str] = "soft"

    def __init__(
        self, decoder: CaptionDecoder, objective: ObjectiveConfig, encoder: Encoder | None = None
    ) -> None:
        super().__init__()
        if decoder.config.selection != self.selection:
            raise ValueError(f"this loss trains {self.selection} attention")
        objective.check_selection(self.selection)
        self.decoder = decoder
        self.encoder = encoder
        self.objective = objective

    def loss(self, batch: CaptioningBatch) -> dict[str, Tensor]:
        """The loss of a batch under the key `loss`, and quantities to report.

        `loss`: mean over captions of equation 14 of Xu et al. 2015, in nats a caption.
        `cross_entropy`: nats a word, without smoothing or regularisation. `grounding`, of a batch
        with `places`: nats a word that names something.
        """
        return self.cross_entropy_loss(batch, batch.annotations(self.encoder))

    def cross_entropy_loss(self, batch: CaptioningBatch, annotations: Tensor) -> dict[str, Tensor]:
        """`CaptioningLoss.loss`, given the annotation vectors (B, L, D) of the batch."""
        objective = self.objective
        memory = self.decoder.remember(annotations)
        forced = self.decoder(memory, self.fed_words(batch, memory).unsqueeze(1))  # K = 1
        logits, weights = forced.logits.squeeze(1), forced.weights.squeeze(1)  # (B, T, V or L)
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
            named = (batch.places.amax(dim=-1) > 0).sum().clamp(min=1)
            report["grounding"] = missed.detach().sum() / named
        return {"loss": loss.mean(), **report}

    def fed_words(self, batch: CaptioningBatch, memory: Memory) -> Tensor:
        """The words (B, T) to feed: the batch's inputs, after scheduled sampling."""
        probability = self.objective.scheduled_sampling * batch.progress
        if probability == 0:
            return batch.inputs
        generator = torch.Generator(batch.inputs.device).manual_seed(batch.seed ^ _SAMPLING_SEED)
        return scheduled_inputs(self.decoder, memory, batch.inputs, probability, generator)


_SAMPLING_SEED = 0x5343484544
"""XORed with a batch's seed: scheduled sampling and hard attention draw different numbers."""


def doubly_stochastic_penalty(weights: Tensor, mask: Tensor) -> Tensor:
    """Unevenness of the attention over a photo: (B,), sum over positions of (1 - sum_t alpha)^2.

    weights (B, T, L), mask (B, T) boolean, False for padding, whose attention is left out.
    Xu et al. 2015, section 4.2.1 and equation 14, second term: summed over the L positions,
    divided neither by L nor by the batch. Computed in float32 at least.
    """
    weights = at_least_float32(weights)
    mass = (weights * mask.unsqueeze(-1)).sum(dim=1)  # (B, L)
    return (1.0 - mass).square().sum(dim=1)


def grounding_penalty(weights: Tensor, places: Tensor) -> Tensor:
    """Minus the logarithm of the attention inside what each word names, summed over words: (B,).

    weights (B, T, L). places (B, T, L): the share of each place inside; 0 everywhere for a word
    that names nothing, which is left out. After Liu, Mao, Sha and Yuille 2017, *Attention
    Correctness in Neural Image Captioning*, section 3.3, but asking only that the attention lies
    inside, not that it is even there. Computed in float32 at least.
    """
    weights = at_least_float32(weights)
    named = places.amax(dim=-1) > 0  # (B, T)
    inside = (weights * places).sum(dim=-1)  # (B, T)
    floor = torch.finfo(weights.dtype).tiny
    return -(inside.where(named, 1.0).clamp(min=floor).log()).sum(dim=-1)


@torch.no_grad()
def scheduled_inputs(
    decoder: CaptionDecoder,
    memory: Memory,
    inputs: Tensor,
    probability: float,
    generator: torch.Generator,
) -> Tensor:
    """Replace words of the captions at random by words that the decoder draws.

    Bengio et al. 2015, *Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks*,
    section 2.4.

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
