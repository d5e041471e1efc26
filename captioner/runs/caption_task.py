"""The captioning task: reads photos and captions, makes the captioner and its batches."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from captioner.arrays import Array
from captioner.backends.torch_captions import TorchCaptions, load_networks, make_decoder
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.folder import save_model
from captioner.data.example import Example
from captioner.data.instances import CocoInstances, read_synonyms
from captioner.errors import UserError, counted
from captioner.evaluation.score import write_results
from captioner.files import write_json
from captioner.model_folders import MODEL, VOCABULARY, ModelFolder, model_folder
from captioner.models.caption_decoder import Standardisation
from captioner.models.caption_losses import CaptioningLoss
from captioner.models.reinforce import HardAttentionLoss, SelfCriticalLoss
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.module_weights import make_trainable
from captioner.outcomes import loading_workers
from captioner.runs.batches import CaptionBatches, chunks, digest_of
from captioner.runs.caption_scores import REFERENCES, RESULTS, CaptionReward, scores_of
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.features import encoder_of, feature_stores
from captioner.runs.photos import CaptionData, PixelRows, Rows, StoredRows, read_training
from captioner.runs.start_model import copy_weights, first_words, origin_of_words
from captioner.text.vocabulary import Vocabulary
from captioner.training.distributed import Processes
from captioner.training.loop import Generated, Validated
from captioner.training.optimizer import ParameterGroups
from captioner.vision.encoder import Encoder
from captioner.vision.encoder_families import RANDOM

STANDARDISED_BY = 256
"""Photos for the mean and deviation of the annotation vectors."""


@dataclass(eq=False)
class CaptionTask:
    """Trains a captioner; see `captioner.runs.run.Task`. Made by `make_caption_task`."""

    recipe: CaptioningRecipe
    networks: TorchCaptions
    loss: CaptioningLoss
    data: list[str]
    digest: str
    batches: CaptionBatches
    rows: Rows  # Of the validation split.
    order: list[int]
    validation: dict[int, Example]  # Those that could be read, by row.
    kind: str = field(default="captioner", init=False)
    pipeline_tag: str = field(default="image-to-text", init=False)

    @cached_property
    def captioner(self) -> Captioner:
        """The captioner of the networks."""
        return Captioner(self.networks, self.recipe.search)

    @property
    def parameter_groups(self) -> ParameterGroups:
        """Groups of the optimiser: the decoder and, if trained, the encoder."""
        settings = self.recipe.training
        groups = [{"params": self.loss.decoder.parameters(), "lr": settings.learning_rate}]
        if self.loss.encoder is not None:
            rate = settings.encoder_learning_rate or settings.learning_rate
            groups.append({"params": self.loss.encoder.parameters(), "lr": rate})
        return groups

    def generate(self, batches: Sequence[Sequence[int]]) -> Iterator[Generated]:
        """Captions of batches of validation photos, and the cross-entropy of people's."""
        longest = self.recipe.data.maximum_length
        for rows, annotations in zip(batches, self.rows.annotations(batches), strict=True):
            captions = self.captioner.caption_annotations(annotations)
            texts = [self.validation[row].words for row in rows]
            pairs = [(place, words[:longest]) for place, each in enumerate(texts) for words in each]
            terms: list[float] = []
            for part in chunks(pairs, self.recipe.validation.batch_size):
                places, words = zip(*part, strict=True)
                for forced in self.networks.teacher_forced(annotations[list(places)], words):
                    terms += forced.log_probabilities
            yield Generated([each.text for each in captions], -math.fsum(terms), len(terms))

    def score(self, captions: list[str]) -> Validated:
        """Score the validation captions."""
        scores = scores_of(captions, list(self.validation.values()))
        return Validated(scores, captions, record=scores, pictures=self._pictures())

    def _pictures(self) -> dict[str, Array]:
        """Captions and maps of the first eight validation photos, for TensorBoard."""
        few = list(self.validation.values())[:8] if self.recipe.training.tensorboard else []
        found = self.captioner.caption([each.source for each in few], on_error="skip")
        return {
            f"photos/{example.name}": np.asarray(caption.panels(caption.text))
            for example, caption in zip(few, found, strict=True)
            if isinstance(caption, Caption) and caption.words
        }

    def save(self, folder: Path, captions: Sequence[str]) -> None:
        """Save the captioner, the captions in COCO's result format, and people's."""
        save_model(self.captioner, folder / MODEL)
        examples = self.validation.values()
        names = [example.image_id for example in examples]
        write_results(folder / RESULTS, dict(zip(names, captions, strict=True)))
        images = [{"id": each.image_id, "file_name": each.name} for each in examples]
        texts = [(example.image_id, text) for example in examples for text in example.captions]
        rows = [{"id": n, "image_id": name, "caption": t} for n, (name, t) in enumerate(texts)]
        write_json(folder / REFERENCES, {"images": images, "annotations": rows})


def make_caption_task(
    recipe: CaptioningRecipe, folder: Path, resumed: bool
) -> Callable[[Processes], CaptionTask]:
    """Read the data, learn the words, make the captioner and its loss. folder: of the run.

    Returns the function that makes the task, in the locked folder. It computes annotation vectors
    and drops photos that could not be read; with photos in the step such a photo ends the run.
    """
    photos = read_training(recipe.data, recipe.validation.images)
    sentences = [*photos.counts(recipe.data.maximum_length), *photos.problems]
    start, captions, name = None, photos.captions, recipe.start_from
    if resumed:  # Its checkpoint has the weights.
        vocabulary = Vocabulary.load(folder / VOCABULARY)
    elif name is not None:
        start = load_networks(ModelFolder(model_folder(name)))
        vocabulary = first_words(start.vocabulary, captions, recipe.minimum_count)
        sentences.append(origin_of_words(vocabulary, start.vocabulary, name))
    else:
        vocabulary = Vocabulary.build(captions, recipe.minimum_count)
    if start is None:
        sentences.append(f"vocabulary: {len(vocabulary):,} words")
    torch.manual_seed(recipe.training.seed)
    encoder = encoder_of(recipe.encoder)
    if recipe.encoder.weights != RANDOM:
        digest = encoder.digest()
        sentences.append(f"encoder: {recipe.encoder.name}, weights of digest {digest}")
    print("\n".join(sentences))
    make = partial(make_decoder, recipe.decoder, len(vocabulary))
    decoder = make_trainable(make, "this decoder")
    networks = TorchCaptions(encoder, decoder, vocabulary, recipe.preprocessing)
    if start is not None:
        copy_weights(start, networks, with_encoder=recipe.encoder.train)
    loss = make_loss(networks, recipe, photos.train)
    instances = None
    if recipe.data.instances is not None:
        instances = CocoInstances([recipe.data.instances])
        instances.known_categories(read_synonyms())  # Refuses one without synonyms.

    def make_task(processes: Processes) -> CaptionTask:
        networks.to(processes.device)
        loss.to(processes.device)
        if processes.is_main:
            vocabulary.save(folder / VOCABULARY)
        train_rows, rows = make_rows(recipe, photos, networks.encoder, processes, folder)
        readable = train_rows.readable
        validation = {row: photos.validation[row] for row in rows.readable}
        with processes.fail_together(), torch.no_grad():
            if not readable or len(validation) < 2:
                found = f"{counted(len(readable), 'photo')} to train on and {len(validation)}"
                raise UserError(f"{found} to validate on are too few: CIDEr-D needs two")
            if lost := len(photos.train) + len(photos.validation) - len(readable) - len(validation):
                sentences.append(f"left out: {counted(lost, 'photo')} that could not be read")
            standardisation = networks.decoder.standardisation
            if standardisation is not None and recipe.start_from is None and not resumed:
                _fit_standardisation(standardisation, train_rows)
        train, shape, workers = photos.train, networks.map_shape, train_rows.workers
        batches = CaptionBatches(
            train, readable, vocabulary, train_rows, recipe, instances, shape, workers
        )
        digest = digest_of([(e.image_id, e.captions) for e in (*photos.train, *photos.validation)])
        order = list(validation)
        return CaptionTask(
            recipe, networks, loss, sentences, digest, batches, rows, order, validation
        )

    return make_task


def make_rows(
    recipe: CaptioningRecipe, photos: CaptionData, encoder: Encoder, processes: Processes, run: Path
) -> tuple[Rows, Rows]:
    """Photos, or stored annotation vectors: of the training and of the validation split."""
    workers = loading_workers(processes.device, processes.local_world_size)
    if recipe.photos_in_step:
        precision = "float32" if recipe.encoder.train else recipe.features.precision
        read, augmentation = recipe.preprocessing, recipe.augmentation
        rows = PixelRows(photos.train, read, encoder, augmentation, precision, workers=workers)
        return rows, replace(rows, examples=photos.validation)
    splits = {"train": photos.train, "validation": photos.validation}
    stores = feature_stores(recipe, encoder, splits, processes, run)
    workers = min(2, workers)  # Stored rows need no more.
    dtype = torch.float16 if processes.device.type == "cuda" else torch.float32
    train = StoredRows(stores["train"], dtype, workers=workers)
    return train, StoredRows(stores["validation"], workers=workers)


def _fit_standardisation(standardisation: Standardisation, rows: Rows) -> None:
    """Measure the mean and deviation of the annotation vectors on some of the photos."""
    photos = rows.readable
    count = min(len(photos), STANDARDISED_BY)
    few = [photos[place * len(photos) // count] for place in range(count)]
    # Workers are persistent: they would idle until the run ends.
    standardisation.fit(replace(rows, workers=0).annotations(chunks(few, 32)))


def make_loss(
    networks: TorchCaptions, recipe: CaptioningRecipe, train: list[Example]
) -> CaptioningLoss:
    """The loss of an objective; the first stages of a trained encoder are frozen.

    train: photos whose captions a reward compares with.
    """
    decoder, objective = networks.decoder, recipe.objective
    trained = networks.encoder if recipe.encoder.train else None
    if trained is not None:  # Batch normalisation that was trained stays as it is.
        trained.freeze(recipe.encoder.train_from - 1, recipe.encoder.weights != RANDOM)
    if isinstance(decoder, ShowAttendTellDecoder) and decoder.config.selection == "hard":
        return HardAttentionLoss(decoder, objective, trained)
    if objective.self_critical is None:
        return CaptioningLoss(decoder, objective, trained)
    words, references = networks.vocabulary, [example.words for example in train]
    reward = CaptionReward(references, words, objective.self_critical, recipe.data.texts)
    return SelfCriticalLoss(decoder, objective, reward, trained)
