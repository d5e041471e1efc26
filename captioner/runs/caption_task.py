"""The captioning task: reads photos and captions, makes the captioner and its batches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.caption import Captioner, CaptioningLoss, load_model, save_model
from captioner.caption.folder import make_decoder
from captioner.data.batches import EncodedCaption, encode_captions, loading_workers
from captioner.data.example import Example
from captioner.data.instances import read_instances
from captioner.data.synonyms import read_synonyms
from captioner.decoding.constraints import trigram_keys, trigrams_of_keys
from captioner.errors import UserError
from captioner.evaluation.score import evaluate_captions
from captioner.evaluation.scorer import write_results
from captioner.model_folders import model_folder
from captioner.render.panels import panels
from captioner.runs.batches import CaptionBatches, MapTargets
from captioner.runs.caption_data import read_training
from captioner.runs.caption_objective import make_loss, use_word_vectors
from captioner.runs.captioning_recipe import SCORES, CaptioningRecipe
from captioner.runs.features import (
    PixelRows,
    Rows,
    StoredRows,
    annotation_batches,
    encoder_of,
    readable,
    stored_features,
)
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.training import Engine, ShownExample
from captioner.vision.encoders import RANDOM
from captioner.vision.preprocessing import read_photo
from captioner.weight_files import fill, read_tensors, write_tensors

WORDS = "vocabulary.json"
"""In a run's folder: its words."""

TRIGRAMS = "trigrams.safetensors"
"""In a run's folder: the keys of the trigrams that its captioner knows, if it knows any."""

RESULTS = "results.json"
"""In a run's folder: the best model's captions of the validation photos, in COCO's format."""

STANDARDISED_BY = 256
"""Photos for the mean and deviation of the annotation vectors."""

SHOWN = 4
"""Photos shown in TensorBoard."""

LISTED = 8
"""New words that are named."""


@dataclass
class CaptionTask:
    """Trains a captioner; a `captioner.runs.run.Task`."""

    recipe: CaptioningRecipe
    splits: dict[str, list[Example]] = field(default_factory=dict)
    captioner: Captioner = field(init=False)
    loss: CaptioningLoss = field(init=False)
    encoded: list[EncodedCaption] = field(init=False)
    data: list[str] = field(init=False)
    rows: Rows = field(init=False)
    kept: list[int] = field(init=False)
    batches: CaptionBatches = field(init=False)
    map_targets: MapTargets | None = None

    def read(self, folder: Path, engine: Engine, resumed: bool) -> None:
        """Read photos, captions and boxes, and make the captioner with its first weights.

        Raises `UserError`, also if encoder, decoder and weights do not fit together.
        """
        recipe = self.recipe
        train, validation, sentences = read_training(recipe.data)
        validation = validation[: recipe.validation.images or None]
        _check_validation(len(validation))
        self.splits = {"train": train, "validation": validation}
        start = None
        if recipe.start_from is not None and not resumed:
            start = load_model(model_folder(recipe.start_from))
        vocabulary = Vocabulary.load(folder / WORDS) if resumed else self._words(start)
        self.encoded, self.data = self._encode(vocabulary, start, sentences)
        torch.manual_seed(recipe.training.seed)
        encoder = encoder_of(recipe)
        if recipe.encoder.weights != RANDOM:
            self.data.append(
                f"encoder: {recipe.encoder.name}, weights of digest {encoder.digest()}"
            )
            print(self.data[-1])
        decoder = make_decoder(recipe.decoder, len(vocabulary))
        self.captioner = Captioner(
            encoder, decoder, vocabulary, recipe.preprocessing, recipe.search
        )
        use_word_vectors(recipe, decoder, vocabulary, resumed)
        if start is not None:
            copy_weights(start, self.captioner, recipe.encoder.train)
            captions = chain.from_iterable(each.words for each in train)
            self.captioner.trigrams = known_trigrams(start, vocabulary, captions)
        elif resumed and (folder / TRIGRAMS).exists():
            self.captioner.trigrams = read_tensors(folder / TRIGRAMS)["keys"]
        trained = encoder if recipe.encoder.train else None
        self.loss = make_loss(recipe, decoder, trained, vocabulary, [each.words for each in train])
        if recipe.data.instances is not None:
            self.map_targets = MapTargets(
                read_instances([recipe.data.instances]).grounding(read_synonyms()),
                [each.image_id for each in train],
                vocabulary,
                recipe.preprocessing,
                self.captioner.map_shape,
            )

    def prepare(self, folder: Path, engine: Engine, resumed: bool) -> None:
        """Compute annotation vectors and make the batches."""
        recipe, captions = self.recipe, self.encoded
        captioner = self.captioner = self.captioner.to(engine.device)
        decoder = captioner.decoder
        self.loss.to(engine.device)
        if engine.is_main:
            captioner.vocabulary.save(folder / WORDS)
            if captioner.trigrams is not None:
                write_tensors(folder / TRIGRAMS, {"keys": captioner.trigrams.cpu()})
        if recipe.photos_in_step:
            train_rows, self.rows = self._photo_rows(captioner, engine)
            self.kept = list(range(len(self.splits["validation"])))
        else:
            train_rows, self.rows, self.kept = self._stored_rows(
                folder, captioner, engine, captions
            )
        if not captions:
            raise UserError("there is nothing left to train on")
        _check_validation(len(self.kept))
        if recipe.start_from is None and not resumed and decoder.standardisation is not None:
            with torch.no_grad():
                rows = _some_rows(captions)
                few = [some.tolist() for some in torch.split(rows, 32)]
                decoder.standardisation.fit(annotation_batches(train_rows, few))
        self.batches = CaptionBatches(captions, train_rows, recipe, self.map_targets)

    @property
    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups of the optimiser: the decoder and, if trained, the encoder."""
        settings, model = self.recipe.training, self.loss
        rates: dict[torch.nn.Module, float] = {model.decoder: settings.learning_rate}
        if model.encoder is not None:
            rates[model.encoder] = settings.encoder_learning_rate or settings.learning_rate
        return [
            {"params": [p for p in part.parameters() if p.requires_grad], "lr": rate}
            for part, rate in rates.items()
        ]

    @property
    def validation_batches(self) -> list[list[int]]:
        """Indices into `kept` of the photos of each validation batch."""
        size = self.recipe.validation.batch_size
        numbers = range(len(self.kept))
        return [list(numbers[first : first + size]) for first in numbers[::size]]

    def generate(self, batches: Sequence[Sequence[int]]) -> Iterator[list[str]]:
        """Captions of validation photos, batch by batch."""
        wanted = [[self.kept[number] for number in numbers] for numbers in batches]
        for vectors in annotation_batches(self.rows, wanted):
            yield [caption.text for caption in self.captioner.caption_annotations(vectors)]

    def score(self, captions: list[str]) -> tuple[dict[str, float], dict[str, Any]]:
        """Scores of the validation captions."""
        return scores_of(captions, self._validated()), {}

    def save(self, folder: Path) -> None:
        """Write the captioner to a folder."""
        save_model(self.captioner, folder)

    def write_texts(self, folder: Path, captions: list[str]) -> None:
        """Write one caption a photo into the run's folder, in COCO's result format."""
        names = (each.image_id for each in self._validated())
        write_results(folder / RESULTS, dict(zip(names, captions, strict=True)))

    def show(self, captions: list[str]) -> list[ShownExample]:
        """The first photos with their captions and maps; an unreadable photo has no picture."""
        shown, captioner = [], self.captioner
        for row in self.kept[:SHOWN]:
            example = self.splits["validation"][row]
            annotations = self.rows.encode(self.rows.read(torch.tensor([row])))
            references = "\n".join(f"- {caption}" for caption in example.captions)
            picture = None
            (caption,) = captioner.caption_annotations(annotations)
            with contextlib.suppress(UserError):  # Also for a caption without words.
                photo = read_photo(example.path, captioner.preprocessing)
                drawn = caption.of_photo(photo.image, photo.region).drawn()
                picture = panels(*drawn, panel_size=160)
            text = f"**{caption.text}**\n\n{references}"
            shown.append(ShownExample(f"photo {example.name}", text, picture))
        return shown

    def _validated(self) -> list[Example]:
        """The validation photos that could be read."""
        return [self.splits["validation"][row] for row in self.kept]

    def _words(self, start: Captioner | None) -> Vocabulary:
        """The words of the training captions, after those of the model to start from."""
        words, count = (
            chain(*(each.words for each in self.splits["train"])),
            self.recipe.minimum_count,
        )
        if start is None:
            return Vocabulary.build(words, count)
        return start.vocabulary.extended(words, count)

    def _encode(
        self, vocabulary: Vocabulary, start: Captioner | None, problems: list[str]
    ) -> tuple[list[EncodedCaption], list[str]]:
        """The encoded training captions, and sentences about the data, printed."""
        recipe, train = self.recipe, self.splits["train"]
        sentences = []
        for name, examples in (("training", train), ("validation", self.splits["validation"])):
            count = sum(len(each.captions) for each in examples)
            sentences.append(f"{name}: {len(examples):,} photos, {count:,} captions")
        sentences += problems
        known = vocabulary if start is None else start.vocabulary
        origin = f"seen {recipe.minimum_count} times or more"
        if recipe.start_from is not None:
            origin = "of the run" if start is None else f"of {recipe.start_from}"
        if start is not None and (new := vocabulary.words[len(start.vocabulary) :]):
            listed = ", ".join(new[:LISTED]) + ", ..." * (len(new) > LISTED)
            origin += f" and {len(new):,} new: {listed}"
        sentences.append(f"vocabulary: {len(known):,} words {origin}")
        words = (each.words for each in train)
        captions, truncated = encode_captions(words, vocabulary, recipe.data.maximum_length)
        if truncated:
            sentences.append(
                f"{truncated:,} caption{'s' * (truncated > 1)} cut to "
                f"{recipe.data.maximum_length} words"
            )
        for sentence in sentences:
            print(sentence)
        return captions, sentences

    def _photo_rows(self, captioner: Captioner, engine: Engine) -> tuple[Rows, Rows]:
        """Rows that the encoder reads in every step."""
        recipe = self.recipe
        precision = "float32" if recipe.encoder.train else recipe.features.precision
        workers = loading_workers(engine.device, engine.local_world_size)
        train, validation = (
            PixelRows(
                examples,
                recipe.preprocessing,
                captioner.encoder,
                recipe.augmentation,
                precision,
                workers,
            )
            for examples in self.splits.values()
        )
        return train, validation

    def _stored_rows(
        self, folder: Path, captioner: Captioner, engine: Engine, captions: list[EncodedCaption]
    ) -> tuple[Rows, Rows, list[int]]:
        """Rows of the feature store, and the validation photos that could be read.

        Captions of unreadable photos are removed.
        """
        stores = stored_features(self.recipe, captioner.encoder, self.splits, folder, engine)
        # Rows need no more than two workers.
        workers = min(2, loading_workers(engine.device, engine.local_world_size))
        train, validation = self.splits["train"], self.splits["validation"]
        dtype = torch.float16 if engine.device.type == "cuda" else torch.float32
        train_rows = StoredRows(stores["train"], dtype, workers)
        validation_rows = StoredRows(stores["validation"], workers=workers)
        usable = set(readable(train, stores["train"]))
        captions[:] = [each for each in captions if each[0] in usable]
        return train_rows, validation_rows, readable(validation, stores["validation"])


def scores_of(captions: Sequence[str], examples: Sequence[Example]) -> dict[str, float]:
    """Scores of one caption a photo against the photos' own, by name; see `SCORES`.

    `exact match` is the share of captions that equal one of their references word for word.
    """
    metrics = evaluate_captions(list(captions), [each.captions for each in examples]).as_dict()
    scores = {name: metrics[name] for name in (*SCORES[:-1], "brevity_penalty")}
    # As the words stand, and as the text reads: "a man 's hat" and "a man's hat".
    exact = [
        caption.split() in example.words or tokenize(caption) in example.words
        for caption, example in zip(captions, examples, strict=True)
    ]
    scores["exact match"] = sum(exact) / len(exact)
    return scores


def _some_rows(captions: list[EncodedCaption]) -> Tensor:
    """Rows of at most `STANDARDISED_BY` photos with captions, evenly spread."""
    rows = sorted({row for row, _ in captions})
    count = min(len(rows), STANDARDISED_BY)
    return torch.tensor([rows[place * len(rows) // count] for place in range(count)])


def _check_validation(photos: int) -> None:
    if photos < 2:
        raise UserError(f"CIDEr-D needs two photos or more to validate on, and there are {photos}")


def known_trigrams(
    start: Captioner, vocabulary: Vocabulary, captions: Iterable[Sequence[str]]
) -> Tensor | None:
    """The trigrams of a model to start from, and those of training captions: keys (N,), sorted.

    vocabulary: that of `start` and new words. captions: tokenised. None where `start` knows none.
    """
    if start.trigrams is None:
        return None
    known = trigrams_of_keys(start.trigrams, len(start.vocabulary))  # (N, 3)
    triples = PeoplesNgrams(captions).token_trigrams(vocabulary)
    new = torch.tensor(triples, dtype=torch.long).view(-1, 3)  # (M, 3), also where M is 0
    first, second, third = torch.cat([known, new]).unbind(dim=1)  # (N + M,) each
    keys: Tensor = torch.unique(trigram_keys(first, second, third, len(vocabulary)))
    return keys


def copy_weights(start: Captioner, captioner: Captioner, with_encoder: bool) -> None:
    """Fill a captioner's decoder and, if wanted, its encoder from those of `start`.

    Words that the vocabulary has beyond that of `start` begin as copies of `<unk>`, which they
    were, and share its probability with it.

    Raises `UserError` for the first tensor that does not fit, and for an encoder that is not to be
    filled and differs from the one that the decoder was trained on.
    """
    decoder = _with_new_words(start, len(captioner.vocabulary))
    fill(captioner.decoder, decoder, "start_from does not fit this decoder")
    if with_encoder:
        fill(captioner.encoder, start.encoder.state_dict(), "start_from does not fit this encoder")
        return
    ours, theirs = captioner.encoder.state_dict(), start.encoder.state_dict()
    for name in sorted(ours.keys() | theirs.keys()):
        has_both = name in ours and name in theirs
        if not has_both or not _equal_up_to_rounding(theirs[name], ours[name]):
            raise UserError(
                "start_from was trained on another encoder than this recipe's: tensor "
                f"{name!r} differs"
            )


def _with_new_words(start: Captioner, size: int) -> dict[str, Tensor]:
    """The decoder's weights with a row for each of `size` words."""
    tensors, known = dict(start.decoder.state_dict()), len(start.vocabulary)
    if size > known:
        rows = torch.tensor([*range(known), *[Vocabulary.unknown] * (size - known)])  # (V,)
        for name in start.decoder.word_tensors:
            tensors[name] = tensors[name][rows]
        tensors["output.bias"][rows == Vocabulary.unknown] -= math.log(1 + size - known)
    return tensors


def _equal_up_to_rounding(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors differ at most by a saved model's rounding to float16."""
    return first.shape == second.shape and torch.allclose(
        first.double(), second.double(), rtol=1e-3, atol=1e-6
    )
