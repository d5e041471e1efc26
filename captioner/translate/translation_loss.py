"""The training loss of translation models."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from captioner.decoding import cross_entropies
from captioner.schema import Config
from captioner.text.token_batches import TranslationBatch
from captioner.translate.model import TranslationModel


class TranslationObjective(Config):
    """The training objective. Raises `UserError` for values out of range."""

    label_smoothing: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability spread over the whole vocabulary (Szegedy et al. 2016, section "
        "7); 0.1 in Vaswani et al. 2017",
    )


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
        logits = outputs.logits.squeeze(1)  # (B, T, V)
        tokens = batch.mask.sum().clamp(min=1)
        losses = cross_entropies(logits, batch.targets, batch.mask, self.objective.label_smoothing)
        return {
            "loss": losses.smoothed.sum() / tokens,
            "cross_entropy": losses.plain.sum() / tokens,
        }
