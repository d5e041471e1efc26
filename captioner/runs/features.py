"""Feature stores of a run: the annotation vectors of its photos, computed once."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioner.data.example import Example
from captioner.errors import UserError, counted
from captioner.outcomes import loading_workers
from captioner.progress import progress_bar
from captioner.runs.captioning_recipe import CaptioningRecipe, EncoderRecipe
from captioner.runs.photos import read_training
from captioner.runs.translation_task import TranslationRecipe
from captioner.schema import to_mapping
from captioner.training.batches import Loader
from captioner.training.distributed import Processes
from captioner.vision.encoder import Encoder
from captioner.vision.encoder_families import build_encoder
from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter
from captioner.vision.images import photo_files
from captioner.vision.shards import source_status


def encoder_of(chosen: EncoderRecipe) -> Encoder:
    """The encoder of a recipe with its weights, which must have the digest that it names."""
    encoder = build_encoder(chosen.config, chosen.weights)
    if chosen.digest is not None and encoder.digest() != chosen.digest:
        reason = f"have the digest {encoder.digest()}, and encoder.digest is {chosen.digest}"
        raise UserError(f"the {chosen.weights} weights of {chosen.name} {reason}")
    return encoder.to(memory_format=torch.channels_last)


def feature_stores(
    recipe: CaptioningRecipe,
    encoder: Encoder,
    splits: Mapping[str, Sequence[Example]],
    processes: Processes,
    run: Path = Path(),
) -> dict[str, FeatureStore]:
    """The finished store of each split; each process computes its share of the missing rows."""
    settings, size = recipe.features, recipe.preprocessing.size
    height, width = encoder.map_shape(size, size)
    of_encoder = to_mapping(encoder.config)
    of_encoder |= {"weights": encoder.digest(), "precision": settings.precision}
    preprocessing = to_mapping(recipe.preprocessing)
    folder = settings.folder
    if folder is None:  # The digest tells other encoders and preprocessing apart.
        origin = {"encoder": of_encoder, "preprocessing": preprocessing}
        digest = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:8]
        name = f"{recipe.encoder.name.replace('/', '-')}-{size}-{digest}"
        folder = run / "features" / name
    encoder = encoder.for_inference(getattr(torch, settings.precision))
    records = {
        name: StoreRecord(
            encoder=of_encoder,
            preprocessing=preprocessing,
            images=[example.name for example in examples],
            shape=(height * width, encoder.annotation_size),
            mirrored=settings.mirror and name == "train",
        )
        for name, examples in splits.items()
    }
    with processes.fail_together():
        for name, record in records.items():
            with StoreWriter(folder / name, record, processes.rank, processes.world_size) as writer:
                _fill(writer, recipe, encoder, splits[name], processes)
    with processes.fail_together():
        stores = {name: FeatureStore(folder / name, record) for name, record in records.items()}
        for name, store in stores.items():
            if photos := {row % len(splits[name]) for row in store.unreadable}:
                first = f"{splits[name][min(photos)].name} the first"
                fault = f"{counted(len(photos), 'photo')} that could not be read, {first}"
                advice = "touch those that can be read now"
                if recipe.data.on_problem == "refuse":
                    advice += ", or set data.on_problem to skip"
                    raise UserError(f"feature store {store.folder} lacks {fault}; {advice}")
                print(f"left out {fault}; {advice}")
    return stores


def _fill(
    writer: StoreWriter,
    recipe: CaptioningRecipe,
    encoder: Encoder,
    examples: Sequence[Example],
    processes: Processes,
) -> None:
    """Compute this process's share of the rows that a split's store lacks."""
    if changed := writer.forget_changed([*map(_state, examples)]):  # In one process alone.
        count = counted(len(changed), "photo")
        print(f"encoded again: {count} that changed, {changed[0]} the first")
    batches = writer.missing(recipe.features.batch_size)
    if not batches:
        return
    workers = loading_workers(processes.device, processes.local_world_size)
    load = Loader(partial(_load_for_store, recipe, examples), workers)
    what, total = f"features, {writer.folder.name}", sum(map(len, batches))
    bar = progress_bar(what, total, "images", 0, processes.is_main)
    with bar as progress, closing(load(batches)) as loaded:
        for rows, (pixels, unreadable) in zip(batches, loaded, strict=True):
            pixels = pixels.to(processes.device, non_blocking=True)
            vectors = encoder.encode(recipe.preprocessing.normalise(pixels))
            vectors[[row in unreadable for row in rows]] = torch.nan
            writer.write(rows, vectors, unreadable)
            progress.update(len(rows))


def _state(example: Example) -> tuple[int, ...]:
    """Size and modification time of a photo's file or shard; a checksum of a picture in memory."""
    if isinstance(example.source, Image.Image):
        return (crc32(example.source.tobytes()),)
    status = source_status(example.source)
    return () if status is None else (status.st_size, status.st_mtime_ns)


def _load_for_store(
    recipe: CaptioningRecipe, examples: Sequence[Example], rows: Sequence[int]
) -> tuple[Tensor, list[int]]:
    """Photos (B, 3, size, size), uint8, and the rows of unreadable ones, which are black.

    The photos of rows from N on are mirrored.
    """
    preprocessing = recipe.preprocessing
    photos = []
    reasons = {}
    for row in rows:
        try:
            photo = preprocessing.load(examples[row % len(examples)].source)
        except UserError as error:
            photo, reasons[row] = Image.new("RGB", (1, 1)), str(error)
        pixels = preprocessing.pixels(photo)  # (3, size, size)
        photos.append(pixels[..., ::-1] if row >= len(examples) else pixels)
    if reasons and recipe.data.on_problem == "refuse":
        advice = "--set data.on_problem=skip leaves such photos out"
        raise UserError(f"{'; '.join(dict.fromkeys(reasons.values()))} ({advice})")
    return torch.from_numpy(np.stack(photos)), list(reasons)


def extract_features(
    recipe: CaptioningRecipe | TranslationRecipe, processes: Processes, photos: str | None = None
) -> dict[str, FeatureStore]:
    """Fill the stores `train` and `validation` in `features.folder`; prints problems and counts.

    photos: a folder, for a store `photos` in place of these; its photos need no captions.
    """
    with processes.fail_together():
        if not isinstance(recipe, CaptioningRecipe) or recipe.photos_in_step:
            raise UserError("features need a captioner's config with a store and a fixed encoder")
        if recipe.features.folder is None:
            raise UserError("no folder for features: give --out, or set features.folder")
        if photos is not None:
            splits = {"photos": [Example(f"{photo}", photo) for photo in photo_files([photos])]}
        else:
            train, validation, problems = read_training(recipe.data, recipe.validation.images)
            print("".join(f"{sentence}\n" for sentence in problems), end="")
            splits = {"train": train, "validation": validation}
        torch.manual_seed(recipe.training.seed)  # As in training.
        encoder = encoder_of(recipe.encoder).to(processes.device)
    stores = feature_stores(recipe, encoder, splits, processes)
    for name, store in stores.items():
        count = store.record.rows - len(store.unreadable)
        print(f"{name}: {counted(count, 'image')} in {store.folder}")
    return stores
