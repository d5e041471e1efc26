"""From a recipe to a captioner: read the data, store the features, train, keep the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch import Tensor

from captioner.caption import (
    Captioner,
    CaptioningBatch,
    CaptioningLoss,
    SearchOptions,
    ShowAttendTellDecoder,
    save_model,
)
from captioner.data.batches import collate, length_bucketed_batches
from captioner.data.examples import CaptionExample, encode_captions
from captioner.errors import UserError
from captioner.evaluation.captions import evaluate_captions
from captioner.evaluation.results import write_results
from captioner.fields import to_mapping
from captioner.files import folder_lock, write_json
from captioner.progress import Progress
from captioner.recipes.config import SCORES, CaptioningRecipe
from captioner.recipes.run_folder import CONFIG, check_folder
from captioner.recipes.sources import Source, mirrored, read_sources
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.training import Validation, train
from captioner.vision.feature_store import FeatureStore, StoreKey, build_store
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import ANNOTATION_SIZE, VGGEncoder, map_size
from captioner.vision.weights import build_encoder, fingerprint

MIRRORED = " mirrored"
"""Behind a photo's name in a feature store: the same photo, left and right exchanged."""


def train_captioner(
    recipe: CaptioningRecipe,
    folder: str | Path,
    resume: bool = False,
    device: torch.device | str = "cpu",
) -> Path:
    """Train a captioner as the recipe says; returns the folder of the best model.

    folder: gets `config.json`, the checkpoint, the log, `features/`, and `model/`, which is
        replaced whenever a validation is the best so far, with its captions beside it in
        `results.json`.
    resume: go on from the folder's checkpoint, with the recipe that it was made with but for
        `CHANGEABLE`. Without it a folder that has one is refused.
    Raises `UserError` for whatever is wrong with the data, the weights or the folder, which no
    other process may be training in.
    """
    folder = Path(folder)
    check_folder(recipe, folder, resume)
    train_source, validation_source = read_sources(recipe.data)
    validation_source = validation_source.first(recipe.validation.images)
    _check_validation(len(validation_source))
    with folder_lock(folder, "run"):
        check_folder(recipe, folder, resume)  # Another run may have been in it meanwhile.
        write_json(folder / CONFIG, to_mapping(recipe))
        return _train(recipe, folder, resume, device, train_source, validation_source)


def _train(
    recipe: CaptioningRecipe,
    folder: Path,
    resume: bool,
    device: torch.device | str,
    train_source: Source,
    validation_source: Source,
) -> Path:
    for name, source in (("training", train_source), ("validation", validation_source)):
        print(f"{name}: {len(source):,} photos, {sum(map(len, source.captions)):,} captions")
        if source.report:
            print(source.report)
    vocabulary = Vocabulary.build(chain(*train_source.words), recipe.minimum_count)
    examples = encode_captions(train_source.words, vocabulary, recipe.data.maximum_length)
    print(f"vocabulary: {len(vocabulary):,} words seen {recipe.minimum_count} times or more")
    if examples.truncated:
        print(f"{examples.truncated:,} captions cut to {recipe.data.maximum_length} words")

    torch.manual_seed(recipe.training.seed)
    encoder = encoder_of(recipe).to(device)
    decoder = ShowAttendTellDecoder(recipe.decoder, len(vocabulary)).to(device)
    captioner = Captioner(encoder, decoder, vocabulary, recipe.preprocessing, recipe.search)
    model = CaptioningLoss(decoder, recipe.objective, encoder if recipe.encoder.train else None)
    train_rows: Rows
    validation_rows: Rows
    kept = list(range(len(validation_source)))
    if recipe.encoder.train:
        train_rows = PixelRows(train_source, recipe.preprocessing)
        validation_rows = PixelRows(validation_source, recipe.preprocessing, encoder)
    else:
        store = stored_features(
            recipe, folder, encoder, {"train": train_source, "validation": validation_source}
        )
        train_rows = StoredRows(store["train"], len(train_source), recipe.features.mirror)
        validation_rows = StoredRows(store["validation"], len(validation_source), False)
        usable = set(readable(train_source, store["train"]))
        examples.examples[:] = [item for item in examples.examples if item.row in usable]
        kept = readable(validation_source, store["validation"])
    if not examples.examples:
        raise UserError("there is nothing left to train on")
    _check_validation(len(kept))
    judged = validation_source.take(kept)
    captions: list[str] = []

    def validate() -> dict[str, float]:
        batch_size = recipe.validation.batch_size
        captions[:] = free_running(captioner, validation_rows, kept, batch_size)
        return scores_of(captions, judged)

    def keep(scores: dict[str, float]) -> None:
        save_model(captioner, folder / "model")
        write_json(folder / "model" / "scores.json", scores)
        write_captions(folder / "results.json", captions, judged)

    train(
        model,
        CaptionBatches(examples.examples, train_rows, recipe),
        recipe.training,
        folder,
        Validation(validate, recipe.validation.score, keep),
        resume,
        _parameter_groups(model, recipe),
    )
    return folder / "model"


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
    rows, columns = map_size(recipe.preprocessing.size, recipe.preprocessing.size)
    device = next(encoder.parameters()).device
    stores = {}
    for name, source in sources.items():
        image_ids = source.names
        if recipe.features.mirror and name == "train":
            image_ids += [image_id + MIRRORED for image_id in image_ids]
        progress: list[Progress] = []
        unreadable: dict[str, str] = {}

        def encode(
            batch: Sequence[int],
            source: Source = source,
            image_ids: list[str] = image_ids,
            unreadable: dict[str, str] = unreadable,
        ) -> Tensor:
            photos = []
            for row in batch:
                try:
                    photos.append(source.open_photo(row % len(source)))
                except UserError as error:
                    if recipe.data.on_problem == "refuse":
                        raise
                    unreadable[image_ids[row]] = str(error)
                    photos.append(Image.new("RGB", (1, 1)))
            pixels = recipe.preprocessing.batch(photos)  # (B, 3, size, size)
            flips = torch.tensor([row >= len(source) for row in batch])  # (B,)
            pixels = torch.where(flips.view(-1, 1, 1, 1), mirrored(pixels), pixels)
            with torch.no_grad():
                found: Tensor = encoder(pixels.to(device=device, memory_format=torch.channels_last))
            return found

        def show(
            done: int,
            name: str = name,
            total: int = len(image_ids),
            bars: list[Progress] = progress,
        ) -> None:
            if not bars:
                bars.append(Progress(f"features of {name}", total, "images", done))
            bars[0].advance(done - bars[0].done)

        stores[name] = build_store(
            base / name,
            image_ids,
            (rows * columns, ANNOTATION_SIZE),
            key,
            encode,
            recipe.features.batch_size,
            show,
            unreadable=unreadable,
        )
        progress[0].close()
        if unreadable and recipe.data.on_problem == "refuse":
            # Left out by a run that skipped them.
            first, reason = next(iter(unreadable.items()))
            raise UserError(
                f"feature store {base / name} lacks {len(unreadable):,} photos that could not be "
                f"read, the first {first}: {reason}; set data.on_problem to skip, or delete it"
            )
    return stores


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
        return self.store.read(rows)


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


@dataclass(frozen=True)
class CaptionBatches:
    """The training set in batches, length-bucketed where features are stored.

    Follows `captioner.training.Batches`.
    """

    examples: list[CaptionExample]
    rows: Rows
    recipe: CaptioningRecipe

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return -(-len(self.examples) // self.recipe.training.batch_size)

    def batches(self, epoch: int, first: int) -> Iterator[CaptioningBatch]:
        """The batches of an epoch from number `first` on."""
        settings = self.recipe.training
        generator = _generator(settings.seed, epoch)
        # Batch normalisation must see batches like the whole set, and captions of one length are of
        # like photos; so where the encoder is trained along, batches are drawn blindly.
        alike = self.recipe.encoder.train
        lengths = [0 if alike else len(example.tokens) for example in self.examples]
        plan = length_bucketed_batches(lengths, settings.batch_size, generator)
        for number, indices in enumerate(plan[first:], start=first):
            # Its own generator for each batch, so that a resumed epoch draws what it would have.
            own = _generator(settings.seed, epoch, number)
            batch = collate([self.examples[index] for index in indices])
            source = self.rows.read(batch.rows, own)
            yield CaptioningBatch(source, batch.inputs, batch.targets, batch.mask)


def free_running(
    captioner: Captioner,
    rows: Rows,
    wanted: Sequence[int],
    batch_size: int,
    search: SearchOptions | None = None,
) -> list[str]:
    """The captions a user would get for the wanted rows, each photo captioned once."""
    captions: list[str] = []
    for first in range(0, len(wanted), batch_size):
        batch = torch.tensor(wanted[first : first + batch_size])  # (B,)
        found = captioner.caption_annotations(rows.annotations(batch), search)
        captions += [caption.text for caption in found]
    return captions


def scores_of(captions: Sequence[str], source: Source) -> dict[str, float]:
    """Scores of one caption a photo against the source's captions, by name; see `SCORES`.

    `exact match` is the share of captions that equal one of their references word for word.
    """
    found = evaluate_captions(list(captions), source.captions).as_dict()
    scores = {name: found[name] for name in (*SCORES[:-1], "brevity_penalty")}
    # As the words stand, and as the text reads: "a man 's hat" and "a man's hat".
    exact = [
        caption.split() in references or tokenize(caption) in references
        for caption, references in zip(captions, source.words, strict=True)
    ]
    scores["exact match"] = sum(exact) / len(exact)
    return scores


def write_captions(path: Path, captions: Sequence[str], source: Source) -> None:
    """Write one caption a photo in COCO's result format, by the source's own `image_ids`."""
    write_results(path, dict(zip(source.image_ids, captions, strict=True)))


def _generator(*numbers: int) -> torch.Generator:
    """A generator of its own for these numbers: a seed, an epoch, a batch."""
    seed = numpy.random.SeedSequence(numbers).generate_state(1, numpy.uint64)[0]
    return torch.Generator().manual_seed(int(seed))


def _check_validation(photos: int) -> None:
    if photos < 2:
        raise UserError(f"CIDEr-D needs two photos or more to validate on, and there are {photos}")


def _parameter_groups(model: CaptioningLoss, recipe: CaptioningRecipe) -> list[dict[str, object]]:
    groups: list[dict[str, object]] = [{"params": list(model.decoder.parameters())}]
    if model.encoder is not None:
        groups.append(
            {
                "params": list(model.encoder.parameters()),
                "lr": recipe.training.encoder_learning_rate or recipe.training.learning_rate,
            }
        )
    return groups
