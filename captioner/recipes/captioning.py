"""From a recipe to a captioner: read the data, train on its features, keep the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy
import torch

from captioner.caption import (
    Captioner,
    CaptioningBatch,
    CaptioningLoss,
    HardAttentionLoss,
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
from captioner.recipes.config import SCORES, CaptioningRecipe
from captioner.recipes.features import (
    PixelRows,
    Rows,
    StoredRows,
    encoder_of,
    readable,
    stored_features,
)
from captioner.recipes.run_folder import CONFIG, check_folder
from captioner.recipes.sources import Source, read_sources
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.training import Validation, train


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
    loss = HardAttentionLoss if recipe.decoder.selection == "hard" else CaptioningLoss
    model = loss(decoder, recipe.objective, encoder if recipe.encoder.train else None).to(device)
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
            seed = _seed(settings.seed, epoch, number, _DRAWS)
            yield CaptioningBatch(source, batch.inputs, batch.targets, batch.mask, seed)


def free_running(
    captioner: Captioner,
    rows: Rows,
    wanted: Sequence[int],
    batch_size: int,
) -> list[str]:
    """The captions a user would get for the wanted rows, each photo captioned once."""
    captions: list[str] = []
    for first in range(0, len(wanted), batch_size):
        batch = torch.tensor(wanted[first : first + batch_size])  # (B,)
        found = captioner.caption_annotations(rows.annotations(batch))
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


_DRAWS = 1
"""Behind the number of a batch: what hard attention draws is not what mirrors its photos."""


def _generator(*numbers: int) -> torch.Generator:
    """A generator of its own for these numbers: a seed, an epoch, a batch."""
    return torch.Generator().manual_seed(_seed(*numbers))


def _seed(*numbers: int) -> int:
    """A seed of its own for these numbers."""
    return int(numpy.random.SeedSequence(numbers).generate_state(1, numpy.uint64)[0])


def _check_validation(photos: int) -> None:
    if photos < 2:
        raise UserError(f"CIDEr-D needs two photos or more to validate on, and there are {photos}")


def _parameter_groups(
    model: CaptioningLoss | HardAttentionLoss, recipe: CaptioningRecipe
) -> list[dict[str, object]]:
    groups: list[dict[str, object]] = [{"params": list(model.decoder.parameters())}]
    if model.encoder is not None:
        groups.append(
            {
                "params": list(model.encoder.parameters()),
                "lr": recipe.training.encoder_learning_rate or recipe.training.learning_rate,
            }
        )
    return groups
