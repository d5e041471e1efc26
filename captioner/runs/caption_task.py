"""The captioning task: reads photos and captions, makes the captioner and its batches."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.caption.base import read_word_vectors
from captioner.caption.captioner import Captioner
from captioner.caption.folder import load_model, make_decoder, save_model
from captioner.caption.losses import CaptioningLoss
from captioner.caption.lstm import ShowAttendTellDecoder
from captioner.caption.reinforce import HardAttentionLoss, SelfCriticalLoss
from captioner.data.batches import EncodedCaption, encode_captions
from captioner.data.example import Example
from captioner.data.instances import read_instances
from captioner.data.parallel import read_lines
from captioner.data.synonyms import read_synonyms
from captioner.errors import UserError, counted
from captioner.evaluation import CONFIDENCE
from captioner.evaluation.score import evaluate_captions, read_results, write_results
from captioner.evaluation.significance import FEW_IMAGES, compare
from captioner.files import write_json
from captioner.model_folders import MODEL, SCORES_FILE, model_folder
from captioner.outcomes import loading_workers
from captioner.render.panels import panels
from captioner.runs.batches import CaptionBatches, MapTargets
from captioner.runs.captioning_recipe import (
    SCORES,
    CaptioningRecipe,
    WordVectorsConfig,
    read_training,
)
from captioner.runs.features import (
    PixelRows,
    Rows,
    StoredRows,
    annotation_batches,
    encoder_of,
    example_stores,
    fill_stores,
    readable,
)
from captioner.runs.rewards import caption_reward
from captioner.runs.start_from import copy_weights, first_words, known_ngrams
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.training.distributed import Engine
from captioner.training.log import ShownExample
from captioner.vision.encoders import RANDOM
from captioner.vision.images import original_size
from captioner.weight_files import read_tensors, write_tensors

WORDS = "vocabulary.json"
"""In a run's folder: its words."""

NGRAMS = "ngrams.safetensors"
"""In a run's folder: the keys of the ngrams that its captioner knows, if it knows any."""

RESULTS = "results.json"
"""In a run's folder: the best model's captions of the validation photos, in COCO's format."""

START_RESULTS = "start_results.json"
"""In the folder of a run that starts from a model: the captions of that model."""

STANDARDISED_BY = 256
"""Photos for the mean and deviation of the annotation vectors."""

SHOWN = 4
"""Photos shown in TensorBoard."""

LISTED = 8
"""New words that are named."""


class CaptionTask:
    """Trains a captioner; see `captioner.runs.run.Task`."""

    def __init__(self, recipe: CaptioningRecipe) -> None:
        self.recipe = recipe

    def read(self, folder: Path, resumed: bool) -> None:
        """Read photos, captions and boxes, and make the captioner with its first weights."""
        recipe = self.recipe
        self.train, validation, problems = read_training(recipe.data)
        self.validation = validation[: recipe.validation.images or None]
        _check_validation(len(self.validation))
        words = [each.words for each in self.train]
        captions = list(chain(*words))
        start = None
        if recipe.start_from is not None and not resumed:
            start = load_model(model_folder(recipe.start_from))
        if resumed:
            vocabulary = Vocabulary.load(folder / WORDS)
        elif start is not None:
            vocabulary = first_words(start.vocabulary, captions, recipe.minimum_count)
        else:
            vocabulary = Vocabulary.build(captions, recipe.minimum_count)
        maximum_length = recipe.data.maximum_length
        self.captions, cut = encode_captions(words, vocabulary, maximum_length)
        self.data = [
            *self._counts(),
            *problems,
            self._words(vocabulary, start),
            *([f"{counted(cut, 'caption')} cut to {maximum_length} words"] if cut else []),
        ]
        torch.manual_seed(recipe.training.seed)
        encoder = encoder_of(recipe)
        if recipe.encoder.weights != RANDOM:
            digest = encoder.digest()
            self.data.append(f"encoder: {recipe.encoder.name}, weights of digest {digest}")
        print("\n".join(self.data))
        decoder = make_decoder(recipe.decoder, len(vocabulary))
        self.captioner = Captioner(
            encoder, decoder, vocabulary, recipe.preprocessing, recipe.search
        )
        if recipe.word_vectors is not None:
            self._use_word_vectors(recipe.word_vectors, resumed)
        if start is not None:
            copy_weights(start, self.captioner, recipe.encoder.train)
            self.captioner.ngrams = known_ngrams(start, vocabulary, captions)
        elif resumed and (folder / NGRAMS).exists():
            self.captioner.ngrams = read_tensors(folder / NGRAMS)["keys"]
        self.loss = self._make_loss(words)
        self.map_targets = None
        if recipe.data.instances is not None:
            instances, synonyms = read_instances([recipe.data.instances]), read_synonyms()
            instances.known_categories(synonyms)
            self.map_targets = MapTargets(
                instances,
                synonyms,
                [each.image_id for each in self.train],
                vocabulary,
                recipe.preprocessing,
                self.captioner.map_shape,
            )

    def _use_word_vectors(self, config: WordVectorsConfig, resumed: bool) -> None:
        """Initialise the embeddings; prints how many.

        resumed: the checkpoint has the embeddings, so they are only frozen and the file is not
            read.
        """
        decoder, vocabulary = self.captioner.decoder, self.captioner.vocabulary
        embedding = decoder.embedding.weight.requires_grad_(not config.freeze)
        if resumed:
            return
        size = self.recipe.decoder.embedding_size
        indices, vectors = read_word_vectors(config.file, vocabulary, size)
        with torch.no_grad():
            embedding[indices] = vectors
        words, count = len(vocabulary) - len(SPECIAL_WORDS), len(indices)
        print(f"word vectors: {count:,} words found in {config.file}, {words - count:,} not found")

    def _make_loss(self, references: Sequence[Sequence[Sequence[str]]]) -> CaptioningLoss:
        """The recipe's loss; the first stages of a trained encoder are frozen.

        references: the words of each training photo's captions, by row, for the reward.
        """
        recipe, decoder = self.recipe, self.captioner.decoder
        objective, encoder = recipe.objective, None
        if recipe.encoder.train:
            encoder = self.captioner.encoder
            encoder.freeze(recipe.encoder.train_from - 1, recipe.encoder.batch_norm_frozen)
        if isinstance(decoder, ShowAttendTellDecoder) and recipe.decoder.selection == "hard":
            return HardAttentionLoss(decoder, objective, encoder)
        if objective.self_critical is None:
            return CaptioningLoss(decoder, objective, encoder)
        texts = [] if recipe.data.texts is None else map(tokenize, read_lines(recipe.data.texts))
        vocabulary = self.captioner.vocabulary
        reward = caption_reward(references, vocabulary, objective.self_critical, texts)
        return SelfCriticalLoss(decoder, objective, reward, encoder)

    def _counts(self) -> list[str]:
        return [
            f"{name}: {counted(len(examples), 'photo')}, "
            f"{counted(sum(len(each.captions) for each in examples), 'caption')}"
            for name, examples in (("training", self.train), ("validation", self.validation))
        ]

    def _words(self, vocabulary: Vocabulary, start: Captioner | None) -> str:
        if start is None:
            return f"vocabulary: {len(vocabulary):,} words"
        if not vocabulary.extends(start.vocabulary):
            return (
                f"vocabulary: {len(vocabulary):,} words of the captions alone: "
                f"{self.recipe.start_from} knows less than a third of what they say, so that "
                "another language is learned, better from a thousand captions or more"
            )
        known = len(start.vocabulary)
        new = vocabulary.words[known:]
        listed = ", ".join(new[:LISTED]) + ", ..." * (len(new) > LISTED)
        origin = f"vocabulary: {known:,} words of {self.recipe.start_from}"
        return origin + (f" and {len(new):,} new: {listed}" if new else "")

    def prepare(self, folder: Path, engine: Engine, resumed: bool) -> None:
        """Compute annotation vectors and make the batches."""
        recipe, captioner = self.recipe, self.captioner.to(engine.device)
        self.loss.to(engine.device)
        if engine.is_main:
            captioner.vocabulary.save(folder / WORDS)
            if captioner.ngrams is not None:
                write_tensors(folder / NGRAMS, {"keys": captioner.ngrams.cpu()})
        train_rows = self._make_rows(folder, engine)
        standardisation = captioner.decoder.standardisation
        with engine.fail_together(), torch.no_grad():
            if not self.captions:
                raise UserError("there is nothing left to train on")
            _check_validation(len(self.kept))
            if recipe.start_from is None and not resumed and standardisation is not None:
                few = [rows.tolist() for rows in torch.split(_some_rows(self.captions), 32)]
                # Workers would wait for another such call until the run ends.
                standardisation.fit(annotation_batches(replace(train_rows, workers=0), few))
        self.batches = CaptionBatches(self.captions, train_rows, recipe, self.map_targets)

    def _make_rows(self, folder: Path, engine: Engine) -> Rows:
        """Make the rows of both splits; returns those of training.

        kept: the validation photos that could be read. Captions of unreadable training photos are
        removed. With photos in the step there are none: an unreadable photo ends the run.
        """
        recipe, captioner = self.recipe, self.captioner
        workers = loading_workers(engine.device, engine.local_world_size)
        if recipe.photos_in_step:
            precision = "float32" if recipe.encoder.train else recipe.features.precision
            settings = captioner.encoder, recipe.augmentation, precision, workers
            self.rows: Rows = PixelRows(self.validation, recipe.preprocessing, *settings)
            self.kept = list(range(len(self.validation)))
            return PixelRows(self.train, recipe.preprocessing, *settings)
        with engine.fail_together():
            splits = {"train": self.train, "validation": self.validation}
            unfilled = example_stores(recipe, captioner.encoder, splits, folder)
        stores = fill_stores(unfilled, captioner.encoder, engine)
        usable = set(readable(self.train, stores["train"]))
        self.captions = [each for each in self.captions if each[0] in usable]
        self.kept = readable(self.validation, stores["validation"])
        workers = min(2, workers)  # Stored rows need no more.
        self.rows = StoredRows(stores["validation"], workers=workers)
        dtype = torch.float16 if engine.device.type == "cuda" else torch.float32
        return StoredRows(stores["train"], dtype, workers)

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

    def generate(self, rank: int, ranks: int) -> dict[int, str]:
        """Captions of the validation photos in the batches of a process, by number."""
        size = self.recipe.validation.batch_size
        numbers = range(len(self.kept))
        batches = [numbers[first : first + size] for first in numbers[::size]][rank::ranks]
        rows = [[self.kept[number] for number in batch] for batch in batches]
        captions = map(self.captioner.caption_annotations, annotation_batches(self.rows, rows))
        texts = [caption.text for caption in chain.from_iterable(captions)]
        return dict(zip(chain(*batches), texts, strict=True))

    def score(self, captions: list[str]) -> dict[str, float]:
        """Scores of the validation captions."""
        return scores_of(captions, [self.validation[row] for row in self.kept])

    def save(self, folder: Path, captions: list[str], scores: dict[str, float]) -> None:
        """Save the captioner with its scores, and the captions in COCO's result format."""
        save_model(self.captioner, folder / MODEL)
        write_json(folder / MODEL / SCORES_FILE, scores)
        names = (self.validation[row].image_id for row in self.kept)
        write_results(folder / RESULTS, dict(zip(names, captions, strict=True)))

    def doubt_of_gain(self, folder: Path) -> str:
        """A sentence if chance explains what the best epoch gained over the start; else ""."""
        if not (folder / START_RESULTS).exists():
            return ""
        start, best = (read_results(folder / name) for name in (START_RESULTS, RESULTS))
        seen = [each for each in self.validation if each.name in start and each.name in best]
        before, after = (
            evaluate_captions([said[each.name] for each in seen], [each.captions for each in seen])
            for said in (start, best)
        )
        found = compare(list(after.metrics.values()), list(before.metrics.values()))
        wanted = self.recipe.validation.score
        name = wanted if wanted in found else "CIDEr-D"
        gain, words = found[name], found["word-precision"]
        is_few = len(seen) < FEW_IMAGES
        if gain.difference > 0 and gain.p_bootstrap < 1 - CONFIDENCE and not is_few:
            return ""
        evidence = "too few photos for a test" if is_few else f"p {gain.p_bootstrap:.2f}"
        return (
            f"nothing was gained that {counted(len(seen), 'validation photo')} can show: "
            f"{name} {gain.second:.3f} at the start and {gain.first:.3f} now ({evidence}), "
            f"true words {words.second:.3f} and {words.first:.3f}"
        )

    def show(self, captions: list[str]) -> list[ShownExample]:
        """The first photos with their captions and maps; an unreadable photo has no picture."""
        shown, captioner = [], self.captioner
        for row in self.kept[:SHOWN]:
            example = self.validation[row]
            (vectors,) = annotation_batches(self.rows, [[row]])
            (caption,) = captioner.caption_annotations(vectors)
            references = "\n".join(f"- {caption}" for caption in example.captions)
            picture = None
            with contextlib.suppress(UserError):  # Also for a caption without words.
                photo = captioner.preprocessing.load(example.path)
                region = captioner.preprocessing.region(*original_size(photo))
                drawn = caption.of_photo(photo, region).drawn()
                picture = panels(*drawn, panel_size=160)
            text = f"**{caption.text}**\n\n{references}"
            shown.append(ShownExample(f"photo {example.name}", text, picture))
        return shown


def scores_of(captions: Sequence[str], examples: Sequence[Example]) -> dict[str, float]:
    """Scores of one caption a photo against the photos' own, by name; see `SCORES`.

    `exact match` is the share of captions that equal one of their references word for word.
    """
    metrics = evaluate_captions(list(captions), [each.captions for each in examples]).to_dict()
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
