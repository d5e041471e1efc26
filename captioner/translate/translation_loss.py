"""The training loss of translation models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from captioner.decoding import cross_entropies
from captioner.errors import UserError
from captioner.text.token_batches import TranslationBatch
from captioner.translate.model import TranslationModel


@dataclass(frozen=True)
class TranslationObjective:
    """The training objective.

    label_smoothing: probability spread over the whole vocabulary (Szegedy et al. 2016, section 7);
        0.1 in Vaswani et al. 2017, section 5.4.

    Raises `UserError` for values out of range.
    """

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"objective label_smoothing {self.label_smoothing} is not in [0, 1)")


class TranslationLoss(nn.Module):
    """Cross-entropy of reference translations, for every model."""

    def __init__(
        self, translation_model: TranslationModel, objective: TranslationObjective | None = None
    ) -> None:
        super().__init__()
        self.translation_model = translation_model
        self.objective = TranslationObjective() if objective is None else objective

    def loss(self, batch: TranslationBatch) -> dict[str, Tensor]:
        """Return the loss of a batch under `loss`, and other values to report.

        `loss`: mean over target tokens, including `<end>`, in nats. `cross_entropy`: the same
        without label smoothing.
        """
        memory = self.translation_model.remember(batch.source, batch.source_mask)
        inputs = batch.inputs.unsqueeze(1)  # (B, 1, T), one row a source
        outputs = self.translation_model(memory, inputs)
        logits = outputs.logits[:, 0]  # (B, T, V)
        tokens = batch.mask.sum().clamp(min=1)
        losses = cross_entropies(logits, batch.targets, batch.mask, self.objective.label_smoothing)
        return {
            "loss": losses.smoothed.sum() / tokens,
            "cross_entropy": losses.plain.sum() / tokens,
        }
