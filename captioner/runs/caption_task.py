"""The captioning task: reads photos and captions, makes the captioner and its batches."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from captioner.arrays import Array
from captioner.backends.torch_captions import TorchCaptions, make_decoder
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.config import captioner_config
from captioner.caption.folder import save_model
from captioner.data.example import Example
from captioner.data.instances import CocoInstances, read_synonyms
from captioner.errors import UserError, counted
from captioner.evaluation.score import write_results
from captioner.files import write_json
from captioner.model_folders import MODEL, VOCABULARY, ModelFolder
from captioner.models.caption_losses import CaptioningLoss
from captioner.models.reinforce import HardAttentionLoss, SelfCriticalLoss
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.module_weights import make_trainable
from captioner.outcomes import loading_workers
from captioner.runs.batches import CaptionBatches, chunks, digest_of
from captioner.runs.caption_scores import REFERENCES, RESULTS, CaptionReward, scores_of
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.features import encoder_of, feature_stores
from captioner.runs.photos import PixelRows, Rows, StoredRows, read_training
from captioner.runs.start_model import Start
from captioner.training.distributed import Processes
from captioner.training.loop import Generated, Validated
from captioner.training.optimizer import ParameterGroups
from captioner.vision.encoder_families import RANDOM

STANDARDISED_BY = 256
"""Photos for the mean and deviation of the annotation vectors."""


@dataclass(eq=False)
class CaptionTask:
    """Trains a captioner; see `captioner.runs.run.Task`. Made by `make_caption_task`."""

    recipe: CaptioningRecipe
    train: list[Example]
    validation: list[Example]
    networks: TorchCaptions
    loss: CaptioningLoss
    data: list[str]
    kind: str = field(default="captioner", init=False)
    pipeline_tag: str = field(default="image-to-text", init=False)

    @cached_property
    def captioner(self) -> Captioner:
        """The captioner of the networks."""
        return Captioner(self.networks, self.recipe.search)

    def prepare(self, folder: Path, processes: Processes, resumed: bool) -> None:
        """Compute annotation vectors and make the batches.

        Drops photos that could not be read; with photos in the step such a photo ends the run.
        """
        recipe = self.recipe
        networks = self.networks.to(processes.device)
        instances = None
        with processes.fail_together():
            if recipe.data.instances is not None:
                instances = CocoInstances([recipe.data.instances])
                instances.known_categories(read_synonyms())  # Refuses one without synonyms.
        self.loss.to(processes.device)
        self.digest = digest_of([(e.image_id, e.captions) for e in (*self.train, *self.validation)])
        if processes.is_main:
            networks.vocabulary.save(folder / VOCABULARY)
        workers = loading_workers(processes.device, processes.local_world_size)
        self.rows: Rows
        train_rows: Rows
        if recipe.photos_in_step:
            precision = "float32" if recipe.encoder.train else recipe.features.precision
            self.rows = PixelRows(
                self.validation,
                recipe.preprocessing,
                networks.encoder,
                recipe.augmentation,
                precision,
                workers=workers,
            )
            train_rows = replace(self.rows, examples=self.train)
        else:
            splits = {"train": self.train, "validation": self.validation}
            stores = feature_stores(recipe, networks.encoder, splits, processes, folder)
            workers = min(2, workers)  # Stored rows need no more.
            dtype = torch.float16 if processes.device.type == "cuda" else torch.float32
            train_rows = StoredRows(stores["train"], dtype, workers=workers)
            self.rows = StoredRows(stores["validation"], workers=workers)
        photos = train_rows.readable
        self.order = self.rows.readable
        longest = recipe.data.maximum_length
        self.words = [[words[:longest] for words in each.words] for each in self.validation]
        self.validation = [self.validation[row] for row in self.order]
        with processes.fail_together(), torch.no_grad():
            if not photos or len(self.validation) < 2:
                raise UserError(
                    f"{counted(len(photos), 'photo')} to train on and {len(self.validation)} to "
                    "validate on are too few: CIDEr-D needs two"
                )
            if recipe.start_from is None and not resumed:
                self._fit_standardisation(train_rows, photos)
        words, map_shape = networks.vocabulary, networks.map_shape
        self.batches = CaptionBatches(
            self.train, photos, words, train_rows, recipe, instances, map_shape, workers
        )

    def _fit_standardisation(self, rows: Rows, photos: list[int]) -> None:
        """Measure the mean and deviation of the annotation vectors on some of the photos."""
        standardisation = self.networks.decoder.standardisation
        if standardisation is not None:
            count = min(len(photos), STANDARDISED_BY)
            few = [photos[place * len(photos) // count] for place in range(count)]
            # Workers are persistent: they would idle until the run ends.
            standardisation.fit(replace(rows, workers=0).annotations(chunks(few, 32)))

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
        for rows, annotations in zip(batches, self.rows.annotations(batches), strict=True):
            captions = self.captioner.caption_annotations(annotations)
            pairs = [(place, words) for place, row in enumerate(rows) for words in self.words[row]]
            terms: list[float] = []
            for part in chunks(pairs, self.recipe.validation.batch_size):
                places, words = zip(*part, strict=True)
                for forced in self.networks.teacher_forced(annotations[list(places)], words):
                    terms += forced.log_probabilities
            yield Generated([each.text for each in captions], -math.fsum(terms), len(terms))

    def score(self, captions: list[str]) -> Validated:
        """Score the validation captions."""
        scores = scores_of(captions, self.validation)
        return Validated(scores, captions, record=scores, pictures=self._pictures())

    def _pictures(self) -> dict[str, Array]:
        """Captions and maps of the first eight validation photos, for TensorBoard."""
        few = self.validation[:8] if self.recipe.training.tensorboard else []
        found = self.captioner.caption([each.source for each in few], on_error="skip")
        return {
            f"photos/{example.name}": np.asarray(caption.panels(caption.text))
            for example, caption in zip(few, found, strict=True)
            if isinstance(caption, Caption) and caption.words
        }

    def save(self, folder: Path, captions: Sequence[str]) -> None:
        """Save the captioner, the captions in COCO's result format, and people's."""
        save_model(self.captioner, folder / MODEL)
        names = [example.image_id for example in self.validation]
        write_results(folder / RESULTS, dict(zip(names, captions, strict=True)))
        images = [{"id": e.image_id, "file_name": e.name} for e in self.validation]
        texts = enumerate((e.image_id, text) for e in self.validation for text in e.captions)
        rows = [{"id": id_, "image_id": image, "caption": text} for id_, (image, text) in texts]
        write_json(folder / REFERENCES, {"images": images, "annotations": rows})

    def remarks(self, folder: Path) -> list[str]:
        """A sentence on what the best model lacks."""
        if (
            self.recipe.data.format == "shapes"
            or captioner_config(ModelFolder(folder / MODEL)).confidence
        ):
            return []
        return ["it has no confidence yet; captioner calibrate fits one"]


def make_caption_task(recipe: CaptioningRecipe, folder: Path, resumed: bool) -> CaptionTask:
    """Read the data, learn the words, make the captioner and its loss. folder: of the run."""
    photos = read_training(recipe.data, recipe.validation.images)
    sentences = [*photos.counts(recipe.data.maximum_length), *photos.problems]
    start = Start(recipe.start_from, folder if resumed else None)
    vocabulary = start.vocabulary(photos.captions, recipe.minimum_count)
    sentences.append(start.origin(vocabulary))
    torch.manual_seed(recipe.training.seed)
    encoder = encoder_of(recipe.encoder)
    if recipe.encoder.weights != RANDOM:
        digest = encoder.digest()
        sentences.append(f"encoder: {recipe.encoder.name}, weights of digest {digest}")
    print("\n".join(sentences))
    make = partial(make_decoder, recipe.decoder, len(vocabulary))
    decoder = make_trainable(make, "this decoder")
    networks = TorchCaptions(encoder, decoder, vocabulary, recipe.preprocessing)
    start.fill(networks, photos.captions, with_encoder=recipe.encoder.train)
    loss = make_loss(networks, recipe, photos.train)
    return CaptionTask(recipe, photos.train, photos.validation, networks, loss, sentences)


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
    references = [example.words for example in train]
    reward = CaptionReward(
        references, networks.vocabulary, objective.self_critical, recipe.data.texts
    )
    return SelfCriticalLoss(decoder, objective, reward, trained)
