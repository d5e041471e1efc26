"""Fills feature stores with the vectors of networks that are no encoder of the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from captioner.data.source import Source
from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_extraction import encoder_of, extraction_progress, source_stores
from captioner.vision.encoder import Encoder
from captioner.vision.encoders import make_encoder
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.weights import NAMED
from captioner.weight_files import write_tensors


def fill_with_network(
    recipe: CaptioningRecipe, sources: dict[str, Source], network: Callable[[Tensor], Tensor]
) -> None:
    """Fill a recipe's stores with another network's annotation vectors.

    sources: of `sources_to_store`. network: photos (B, 3, size, size) in [0, 1] -> (B, L, D).
    Where the file `encoder.weights` is missing, random weights are written to it: they stand in
    for the network.
    Raises `UserError` if `encoder.weights` names no file, and as `source_stores` does.
    """
    if recipe.encoder.weights in NAMED:
        raise UserError("encoder.weights must name a file, to stand in for the network")
    weights = Path(recipe.encoder.weights)
    if not weights.exists():
        torch.manual_seed(0)
        write_tensors(weights, make_encoder(recipe.encoder.config).state_dict())
    stand_in = encoder_of(recipe)
    stores = source_stores(recipe, stand_in, sources)
    encoder = _NetworkEncoder(stand_in, network, recipe.preprocessing)
    with extraction_progress(stores.values()) as report:
        for store in stores.values():
            store.fill(encoder, report=report)
    for name, store in stores.items():
        print(f"{name}: {len(store.open()):,} images in {store.folder}")


class _NetworkEncoder(nn.Module):
    """A network in place of an encoder: takes preprocessed photos."""

    def __init__(
        self,
        stand_in: Encoder,
        network: Callable[[Tensor], Tensor],
        preprocessing: Preprocessing,
    ) -> None:
        super().__init__()
        self.stand_in = stand_in
        self.network = network
        self.mean = torch.tensor(preprocessing.mean).view(1, 3, 1, 1)
        self.deviation = torch.tensor(preprocessing.standard_deviation).view(1, 3, 1, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.network((pixels * self.deviation + self.mean).clamp(0, 1))  # (B, L, D)
