"""The captioning task: reads photos and captions, makes the captioner and its batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from captioner.caption import Captioner, CaptioningLoss, load_model, save_model
from captioner.caption.folder import make_decoder
from captioner.data.coco_instances import read_instances
from captioner.data.examples import CaptionExample, CaptionExamples, encode_captions
from captioner.data.loading import loading_workers
from captioner.data.source import Source
from captioner.data.synonyms import read_synonyms
from captioner.errors import UserError
from captioner.evaluation.captions import evaluate_captions
from captioner.evaluation.results import write_results
from captioner.model_folders import model_folder
from captioner.render.panels import panels
from captioner.runs.annotation_rows import (
    PixelRows,
    Rows,
    StoredRows,
    annotation_batches,
    readable,
)
from captioner.runs.caption_batches import CaptionBatches
from captioner.runs.caption_objective import make_loss, use_word_vectors
from captioner.runs.captioning_recipe import SCORES, CaptioningRecipe
from captioner.runs.feature_extraction import encoder_of, stored_features
from captioner.runs.map_targets import MapTargets
from captioner.runs.read_sources import read_sources
from captioner.runs.starting_weights import copy_weights
from captioner.runs.task import PreparedRun, batches_of
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.training import Engine, ShownExample
from captioner.vision.encoders import RANDOM

WORDS = "vocabulary.json"
"""In a run's folder: its words."""

RESULTS = "results.json"
"""In a run's folder: the best model's captions of the validation photos, in COCO's format."""

STANDARDISED_BY = 256
"""Photos for the mean and deviation of the annotation vectors."""

SHOWN = 4
"""Photos shown in TensorBoard."""

LISTED = 8
"""New words that are named."""


@dataclass
class CaptioningTask:
    """A `captioner.runs.task.Task`."""

    recipe: CaptioningRecipe
    sources: dict[str, Source] = field(default_factory=dict)
    captioner: Captioner = field(init=False)
    loss: CaptioningLoss = field(init=False)
    encoded: tuple[CaptionExamples, list[str]] = field(init=False)
    map_targets: MapTargets | None = None

    def read(self, folder: Path, engine: Engine, resumed: bool) -> None:
        """Read photos, captions and boxes, and make the captioner with its first weights.

        Raises `UserError`, also if encoder, decoder and weights do not fit together.
        """
        recipe = self.recipe
        train, validation = read_sources(recipe.data)
        validation = validation.first(recipe.validation.images)
        _check_validation(len(validation))
        self.sources = {"train": train, "validation": validation}
        start = None
        if recipe.start_from is not None and not resumed:
            start = load_model(model_folder(recipe.start_from))
        vocabulary = Vocabulary.load(folder / WORDS) if resumed else self._words(start)
        examples, sentences = self._encode(vocabulary, start)
        self.encoded = examples, sentences
        torch.manual_seed(recipe.training.seed)
        encoder = encoder_of(recipe)
        if recipe.encoder.weights != RANDOM:
            sentences.append(
                f"encoder: {recipe.encoder.name}, weights of digest {encoder.digest()}"
            )
            print(sentences[-1])
        decoder = make_decoder(recipe.decoder, len(vocabulary))
        self.captioner = Captioner(
            encoder, decoder, vocabulary, recipe.preprocessing, recipe.search
        )
        use_word_vectors(recipe, decoder, vocabulary, resumed)
        if start is not None:
            copy_weights(start, self.captioner, recipe.encoder.train)
        trained = encoder if recipe.encoder.train else None
        self.loss = make_loss(recipe, decoder, trained, vocabulary, train.words)
        if recipe.data.instances is not None:
            self.map_targets = MapTargets(
                read_instances([recipe.data.instances]).grounding(read_synonyms()),
                train.image_ids,
                vocabulary,
                recipe.preprocessing,
                self.captioner.map_shape,
            )

    def prepare(self, folder: Path, engine: Engine, resumed: bool) -> PreparedRun:
        """Compute annotation vectors and make batches. Raises `UserError`."""
        recipe, device, captioner = self.recipe, engine.device, self.captioner
        examples, sentences = self.encoded
        decoder, loss = captioner.to(device).decoder, self.loss.to(device)
        if engine.is_main:
            captioner.vocabulary.save(folder / WORDS)
        if recipe.photos_in_step:
            train_rows, validation_rows = self._photo_rows(captioner, engine)
            kept = list(range(len(self.sources["validation"])))
        else:
            train_rows, validation_rows, kept = self._stored_rows(
                folder, captioner, engine, examples
            )
        if not examples.examples:
            raise UserError("there is nothing left to train on")
        _check_validation(len(kept))
        if recipe.start_from is None and not resumed and decoder.standardisation is not None:
            with torch.no_grad():
                rows = _some_rows(examples.examples)
                few = [some.tolist() for some in torch.split(rows, 32)]
                decoder.standardisation.fit(annotation_batches(train_rows, few))
        validated = self.sources["validation"].take(kept)
        return PreparedRun(
            loss=loss,
            batches=CaptionBatches(examples.examples, train_rows, recipe, self.map_targets),
            validation_batches=batches_of(range(len(kept)), recipe.validation.batch_size),
            generate=partial(_generate, captioner, validation_rows, kept),
            score=lambda captions: (scores_of(captions, validated), {}),
            save=partial(save_model, captioner),
            write_texts=partial(write_captions, validated),
            show=lambda captions: _show(captioner, validation_rows, kept, validated),
            data=sentences,
            starts_trained=recipe.start_from is not None,
            parameter_groups=_parameter_groups(loss, recipe),
        )

    def _words(self, start: Captioner | None) -> Vocabulary:
        """The words of the training captions, after those of the model to start from."""
        words, count = chain(*self.sources["train"].words), self.recipe.minimum_count
        if start is None:
            return Vocabulary.build(words, count)
        return start.vocabulary.extended(words, count)

    def _encode(
        self, vocabulary: Vocabulary, start: Captioner | None
    ) -> tuple[CaptionExamples, list[str]]:
        """The encoded training captions, and sentences about the data, printed."""
        recipe, train = self.recipe, self.sources["train"]
        sentences = [train.note] if train.note else []
        for name, source in (("training", train), ("validation", self.sources["validation"])):
            captions = sum(map(len, source.captions))
            sentences.append(f"{name}: {len(source):,} photos, {captions:,} captions")
        sentences += dict.fromkeys(s.report for s in self.sources.values() if s.report)
        known = vocabulary if start is None else start.vocabulary
        origin = f"seen {recipe.minimum_count} times or more"
        if recipe.start_from is not None:
            origin = "of the run" if start is None else f"of {recipe.start_from}"
        if start is not None and (new := vocabulary.words[len(start.vocabulary) :]):
            listed = ", ".join(new[:LISTED]) + ", ..." * (len(new) > LISTED)
            origin += f" and {len(new):,} new: {listed}"
        sentences.append(f"vocabulary: {len(known):,} words {origin}")
        examples = encode_captions(train.words, vocabulary, recipe.data.maximum_length)
        if examples.truncated:
            sentences.append(
                f"{examples.truncated:,} caption{'s' * (examples.truncated > 1)} cut to "
                f"{recipe.data.maximum_length} words"
            )
        for sentence in sentences:
            print(sentence)
        return examples, sentences

    def _photo_rows(self, captioner: Captioner, engine: Engine) -> tuple[Rows, Rows]:
        """Rows that the encoder reads in every step."""
        recipe = self.recipe
        precision = "float32" if recipe.encoder.train else recipe.features.precision
        workers = loading_workers(engine.device, engine.local_world_size)
        train, validation = (
            PixelRows(
                source,
                recipe.preprocessing,
                captioner.encoder,
                recipe.augmentation,
                precision,
                workers,
            )
            for source in self.sources.values()
        )
        return train, validation

    def _stored_rows(
        self, folder: Path, captioner: Captioner, engine: Engine, examples: CaptionExamples
    ) -> tuple[Rows, Rows, list[int]]:
        """Rows of the feature store, and the validation photos that could be read.

        Examples of unreadable photos are removed.
        """
        stores = stored_features(self.recipe, captioner.encoder, self.sources, folder, engine)
        workers = min(
            2, loading_workers(engine.device, engine.local_world_size)
        )  # rows need no more
        train, validation = self.sources["train"], self.sources["validation"]
        dtype = torch.float16 if engine.device.type == "cuda" else torch.float32
        train_rows = StoredRows(stores["train"], dtype, workers)
        validation_rows = StoredRows(stores["validation"], workers=workers)
        usable = set(readable(train, stores["train"]))
        examples.examples[:] = [item for item in examples.examples if item.row in usable]
        return train_rows, validation_rows, readable(validation, stores["validation"])


def _generate(
    captioner: Captioner, rows: Rows, kept: Sequence[int], batches: Sequence[Sequence[int]]
) -> Iterator[list[str]]:
    """Captions of validation photos, batch by batch; `batches` index `kept`."""
    wanted = [[kept[number] for number in numbers] for numbers in batches]
    for vectors in annotation_batches(rows, wanted):
        yield [caption.text for caption in captioner.caption_annotations(vectors)]


def scores_of(captions: Sequence[str], source: Source) -> dict[str, float]:
    """Scores of one caption a photo against the source's captions, by name; see `SCORES`.

    `exact match` is the share of captions that equal one of their references word for word.
    """
    metrics = evaluate_captions(list(captions), source.captions).as_dict()
    scores = {name: metrics[name] for name in (*SCORES[:-1], "brevity_penalty")}
    # As the words stand, and as the text reads: "a man 's hat" and "a man's hat".
    exact = [
        caption.split() in references or tokenize(caption) in references
        for caption, references in zip(captions, source.words, strict=True)
    ]
    scores["exact match"] = sum(exact) / len(exact)
    return scores


def write_captions(source: Source, folder: Path, captions: Sequence[str]) -> None:
    """Write one caption a photo into the run's folder, in COCO's result format."""
    write_results(folder / RESULTS, dict(zip(source.image_ids, captions, strict=True)))


def _show(
    captioner: Captioner, rows: Rows, kept: Sequence[int], source: Source
) -> list[ShownExample]:
    """The first photos with their captions and maps; an unreadable photo has no picture."""
    shown = []
    for index, row in enumerate(kept[:SHOWN]):
        annotations = rows.encode(rows.read(torch.tensor([row])))
        references = "\n".join(f"- {caption}" for caption in source.captions[index])
        picture = None
        (caption,) = captioner.caption_annotations(annotations)
        with contextlib.suppress(UserError):  # Also for a caption without words.
            photo = source.open_photo(index)
            region = captioner.preprocessing.region(photo.width, photo.height)
            picture = panels(*caption.of_photo(photo, region).drawn(), panel_size=160)
        text = f"**{caption.text}**\n\n{references}"
        shown.append(ShownExample(f"photo {source.image_ids[index]}", text, picture))
    return shown


def _some_rows(examples: list[CaptionExample]) -> Tensor:
    """Rows of at most `STANDARDISED_BY` photos with captions, evenly spread."""
    rows = sorted({example.row for example in examples})
    count = min(len(rows), STANDARDISED_BY)
    return torch.tensor([rows[place * len(rows) // count] for place in range(count)])


def _check_validation(photos: int) -> None:
    if photos < 2:
        raise UserError(f"CIDEr-D needs two photos or more to validate on, and there are {photos}")


def _parameter_groups(model: CaptioningLoss, recipe: CaptioningRecipe) -> list[dict[str, object]]:
    settings = recipe.training
    rates: dict[torch.nn.Module, float] = {model.decoder: settings.learning_rate}
    if model.encoder is not None:
        rates[model.encoder] = settings.encoder_learning_rate or settings.learning_rate
    return [
        {"params": [p for p in part.parameters() if p.requires_grad], "lr": rate}
        for part, rate in rates.items()
    ]
