"""From a recipe to a captioner: read the data, train on its features, keep the best."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from captioner.caption import Captioner, ShowAttendTellDecoder
from captioner.data.examples import CaptionExample, encode_captions
from captioner.data.loading import loading_workers
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.recipes.caption_batches import CaptionBatches
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.features import (
    PixelRows,
    Rows,
    StoredRows,
    annotation_batches,
    encoder_of,
    readable,
    stored_features,
)
from captioner.recipes.judge import MODEL, CaptionJudge, free_running, scores_of, write_captions
from captioner.recipes.objectives import Loss, make_loss, use_word_vectors
from captioner.recipes.run_folder import check_run, locked_run_folder, run_engine
from captioner.recipes.sources import read_sources
from captioner.recipes.start import WORDS, Start, read_start
from captioner.text.vocabulary import Vocabulary
from captioner.training import CHECKPOINT, Engine, Validation, train

__all__ = ["CaptionBatches", "free_running", "scores_of", "train_captioner", "write_captions"]

_STANDARDISED_BY = 256
"""Photos whose annotation vectors, 196 each, tell what those of all are like."""


def train_captioner(
    recipe: CaptioningRecipe,
    folder: str | Path,
    resume: bool = False,
    device: torch.device | str = "cpu",
) -> Path:
    """Train a captioner as the recipe says; returns the folder of the best model.

    folder: gets `config.json`, `vocabulary.json`, `environment.json` (the versions it was made
        with), the checkpoint, the log, `features/`, and `model/`, which is replaced whenever a
        validation is the best so far, with its captions beside it in `results.json`.
    resume: go on from the folder's checkpoint, with the recipe that it was made with but for
        `CHANGEABLE`. Without it a folder that has one is refused.
    device: under `torchrun`, a kind of device, of which each process takes its own.
    Raises `UserError` for whatever is wrong with the data, the weights or the folder, which no
    other run may be training in. Several processes end as `captioner.training.train` says.
    """
    folder = Path(folder)
    with run_engine(device) as engine, contextlib.ExitStack() as kept:
        with engine.fail_together():
            check_run(recipe, folder, resume, engine)
            train_source, validation_source = read_sources(recipe.data)
            validation_source = validation_source.first(recipe.validation.images)
            _check_validation(len(validation_source))
            resumed = resume and (folder / CHECKPOINT).exists()
            start = _start(recipe, folder, resumed)
        kept.enter_context(locked_run_folder(recipe, folder, resume, engine))
        with engine.abort_together():
            ready = _prepare(
                recipe, folder, engine, train_source, validation_source, start, resumed
            )
            engine.gather(None)  # Everything is there for everyone.
        judge = CaptionJudge(
            ready.captioner, ready.validation_rows, ready.kept, ready.judged, recipe, folder, engine
        )
        train(
            ready.model,
            ready.batches,
            recipe.training,
            folder,
            Validation(judge.run, recipe.validation.score, judge.keep, judge.show, judge.save),
            resume,
            _parameter_groups(ready.model, recipe),
            engine,
        )
        print(f"the best model is in {folder / MODEL}")
    return folder / MODEL


@dataclass(frozen=True)
class _Prepared:
    """All that training needs; `kept` are the rows of the photos of `judged`."""

    captioner: Captioner
    model: Loss
    batches: CaptionBatches
    validation_rows: Rows
    kept: list[int]
    judged: Source


def _prepare(
    recipe: CaptioningRecipe,
    folder: Path,
    engine: Engine,
    train_source: Source,
    validation_source: Source,
    start: Start | None,
    resumed: bool,
) -> _Prepared:
    device = engine.device
    for name, source in (("training", train_source), ("validation", validation_source)):
        print(f"{name}: {len(source):,} photos, {sum(map(len, source.captions)):,} captions")
        if source.report:
            print(source.report)
    if start is None:
        vocabulary = Vocabulary.build(chain(*train_source.words), recipe.minimum_count)
        print(f"vocabulary: {len(vocabulary):,} words seen {recipe.minimum_count} times or more")
    else:
        vocabulary = start.vocabulary
        print(f"vocabulary: {len(vocabulary):,} words of {start.source}")
    examples = encode_captions(train_source.words, vocabulary, recipe.data.maximum_length)
    if examples.truncated:
        print(f"{examples.truncated:,} captions cut to {recipe.data.maximum_length} words")

    torch.manual_seed(recipe.training.seed)
    encoder = encoder_of(recipe).to(device)
    decoder = ShowAttendTellDecoder(recipe.decoder, len(vocabulary)).to(device)
    captioner = Captioner(encoder, decoder, vocabulary, recipe.preprocessing, recipe.search)
    use_word_vectors(recipe, decoder, vocabulary, resumed)
    if start is not None:
        start.put_into(decoder, encoder, recipe.encoder.train)
    if engine.is_main:
        vocabulary.save(folder / WORDS)
    trained = encoder if recipe.encoder.train else None
    model = make_loss(recipe, decoder, trained, vocabulary, train_source.words).to(device)
    train_rows: Rows
    validation_rows: Rows
    kept = list(range(len(validation_source)))
    workers = loading_workers(device, engine.local_size)
    if recipe.photos_in_step:
        precision = "float32" if recipe.encoder.train else recipe.features.precision
        train_rows, validation_rows = (
            PixelRows(
                source, recipe.preprocessing, encoder, recipe.augmentation, precision, workers
            )
            for source in (train_source, validation_source)
        )
    else:
        store = stored_features(
            recipe,
            folder,
            encoder,
            {"train": train_source, "validation": validation_source},
            engine.rank,
            engine.size,
            engine.local_size,
        )
        workers = min(2, workers)  # Stored rows need no more.
        train_rows = StoredRows(
            store["train"],
            len(train_source),
            recipe.features.mirror,
            torch.float16 if device.type == "cuda" else torch.float32,
            workers,
        )
        validation_rows = StoredRows(
            store["validation"], len(validation_source), False, workers=workers
        )
        usable = set(readable(train_source, store["train"]))
        examples.examples[:] = [item for item in examples.examples if item.row in usable]
        kept = readable(validation_source, store["validation"])
    if not examples.examples:
        raise UserError("there is nothing left to train on")
    _check_validation(len(kept))
    judged = validation_source.take(kept)
    if start is None and not resumed and decoder.standardisation is not None:
        with torch.no_grad():
            rows = _some_rows(examples.examples)
            few = [some.tolist() for some in torch.split(rows, 32)]
            decoder.standardisation.fit(annotation_batches(train_rows, few))
    frozen = train_rows.encode if recipe.photos_in_step and not recipe.encoder.train else None
    batches = CaptionBatches(examples.examples, train_rows, recipe, workers, frozen)
    return _Prepared(captioner, model, batches, validation_rows, kept, judged)


def _some_rows(examples: list[CaptionExample]) -> Tensor:
    """Rows of photos that have captions, `_STANDARDISED_BY` at most, spread evenly over all."""
    rows = sorted({example.row for example in examples})
    count = min(len(rows), _STANDARDISED_BY)
    return torch.tensor([rows[place * len(rows) // count] for place in range(count)])


def _start(recipe: CaptioningRecipe, folder: Path, resumed: bool) -> Start | None:
    """What the run starts with; of a resumed one, its words only: its weights are behind it."""
    if recipe.start_from is None:
        return None
    if resumed:
        return Start(recipe.start_from, Vocabulary.load(folder / WORDS), {}, {})
    return read_start(recipe.start_from)


def _check_validation(photos: int) -> None:
    if photos < 2:
        raise UserError(f"CIDEr-D needs two photos or more to validate on, and there are {photos}")


def _parameter_groups(model: Loss, recipe: CaptioningRecipe) -> list[dict[str, object]]:
    groups: list[dict[str, object]] = [{"params": _trained(model.decoder)}]
    if model.encoder is not None:
        groups.append(
            {
                "params": _trained(model.encoder),
                "lr": recipe.training.encoder_learning_rate or recipe.training.learning_rate,
            }
        )
    return groups


def _trained(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that are not frozen."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
