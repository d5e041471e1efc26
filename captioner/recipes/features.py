"""Where training and validation get their annotation vectors: a feature store, or the photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from captioner.errors import UserError
from captioner.progress import Progress
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.sources import Source, mirrored, read_sources
from captioner.vision.feature_store import FeatureStore, StoreKey, build_store
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import ANNOTATION_SIZE, VGGEncoder, map_size
from captioner.vision.weights import build_encoder, fingerprint

MIRRORED = " mirrored"
"""Behind a photo's name in a feature store: the same photo, left and right exchanged."""


def encoder_of(recipe: CaptioningRecipe) -> VGGEncoder:
    """The recipe's encoder, with its weights. Raises `UserError` when they cannot be had."""
    encoder = build_encoder(recipe.encoder.config, recipe.encoder.weights)
    return encoder.to(memory_format=torch.channels_last)


def stored_features(
    recipe: CaptioningRecipe, folder: Path, encoder: VGGEncoder, sources: dict[str, Source]
) -> dict[str, FeatureStore]:
    """The annotation vectors of each source, from the store; computed where they are not there.

    Training photos are stored mirrored as well where the recipe says so. Raises `UserError` as
    `build_store` does, and where the recipe refuses unreadable photos, naming the first.
    """
    base = recipe.features.folder or folder / "features"
    key = StoreKey(fingerprint(encoder), recipe.preprocessing.fingerprint())
    return {
        name: _stored(
            recipe, base / name, key, encoder, source, recipe.features.mirror and name == "train"
        )
        for name, source in sources.items()
    }


def _stored(
    recipe: CaptioningRecipe,
    folder: Path,
    key: StoreKey,
    encoder: VGGEncoder,
    source: Source,
    mirror: bool,
) -> FeatureStore:
    """The store of one source; behind its N photos, with `mirror`, the same N mirrored."""
    names = source.names
    if mirror:
        names = [*names, *(name + MIRRORED for name in names)]
    rows, columns = map_size(recipe.preprocessing.size, recipe.preprocessing.size)
    device = next(encoder.parameters()).device
    refuse = recipe.data.on_problem == "refuse"
    unreadable: dict[str, str] = {}
    progress: Progress | None = None

    def encode(batch: Sequence[int]) -> Tensor:
        photos = []
        for row in batch:
            try:
                photos.append(source.open_photo(row % len(source)))
            except UserError as error:
                if refuse:
                    raise
                unreadable[names[row]] = str(error)
                photos.append(Image.new("RGB", (1, 1)))
        pixels = recipe.preprocessing.batch(photos)  # (B, 3, size, size)
        flips = torch.tensor([row >= len(source) for row in batch])  # (B,)
        pixels = torch.where(flips.view(-1, 1, 1, 1), mirrored(pixels), pixels)
        with torch.no_grad():
            found: Tensor = encoder(pixels.to(device=device, memory_format=torch.channels_last))
        return found

    def show(done: int) -> None:
        nonlocal progress
        if progress is None:  # The first call says where a stopped extraction goes on.
            progress = Progress(f"features of {folder.name}", len(names), "images", done)
        progress.advance(done - progress.done)

    store = build_store(
        folder,
        names,
        (rows * columns, ANNOTATION_SIZE),
        key,
        encode,
        recipe.features.batch_size,
        show,
        unreadable=unreadable,
    )
    if progress is not None:
        progress.close()
    if unreadable and refuse:
        # Left out by a run that skipped them.
        first, reason = next(iter(unreadable.items()))
        raise UserError(
            f"feature store {folder} lacks {len(unreadable):,} photos that could not be "
            f"read, the first {first}: {reason}; set data.on_problem to skip, or delete it"
        )
    return store


def readable(source: Source, store: FeatureStore) -> list[int]:
    """The rows of the photos that could be read; the others are counted and named in print."""
    rows = [row for row, name in enumerate(source.names) if name not in store.unreadable]
    lost = len(source) - len(rows)
    if lost:
        reason = next(iter(store.unreadable.values()))
        print(f"{lost:,} photos could not be read and are left out; the first: {reason}")
    return rows


def store_recipe_features(
    recipe: CaptioningRecipe, device: torch.device | str = "cpu"
) -> dict[str, FeatureStore]:
    """Fill the store that the recipe's `features.folder` names, and open it.

    Raises `UserError` when the recipe trains its encoder, which leaves nothing to store, when it
    names no folder, and as `build_store` does.
    """
    if recipe.encoder.train:
        raise UserError("this config trains its encoder, so there is nothing to store")
    if recipe.features.folder is None:
        raise UserError("this config names no features.folder, so there is nowhere to store them")
    train_source, validation_source = read_sources(recipe.data)
    validation_source = validation_source.first(recipe.validation.images)
    return stored_features(
        recipe,
        recipe.features.folder,
        encoder_of(recipe).to(device),
        {"train": train_source, "validation": validation_source},
    )


class StoredRows:
    """Annotation vectors from a store, mirrored or not by chance."""

    def __init__(self, store: FeatureStore, count: int, mirror: bool) -> None:
        self.store, self.count, self.mirror = store, count, mirror

    def read(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D); mirrored ones only with a generator."""
        if self.mirror and generator is not None:
            flips = torch.randint(2, rows.shape, generator=generator)  # (B,)
            rows = rows + flips * self.count
        return self.store.read(rows)

    def annotations(self, rows: Tensor) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D)."""
        return self.read(rows)


class PixelRows:
    """Photos themselves, for an encoder that is trained along."""

    def __init__(
        self, source: Source, preprocessing: Preprocessing, encoder: VGGEncoder | None = None
    ) -> None:
        self.source, self.preprocessing, self.encoder = source, preprocessing, encoder

    def read(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Rows (B,) -> preprocessed photos (B, 3, size, size)."""
        pixels = self.source.pixels(rows.tolist(), self.preprocessing)
        return pixels.to(memory_format=torch.channels_last)

    def annotations(self, rows: Tensor) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D), by the encoder as it is now."""
        assert self.encoder is not None
        device = next(self.encoder.parameters()).device
        found: Tensor = self.encoder(self.read(rows).to(device))
        return found


Rows = StoredRows | PixelRows
