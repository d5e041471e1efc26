"""The photos that the packaged model learns from, and their captions.

Flickr8k shows people and dogs outdoors; the everyday photos show food, rooms, streets and animals.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as transforms

from captioner.cli.program import script_parser
from captioner.data.readers import read_splits
from captioner.progress import progress_bar
from captioner.training.batches import Batches, Place
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Processes
from captioner.training.loop import Trainer, Validated, Validation
from captioner.training.optimizer import make_optimizer
from captioner.vision.images import load_image

PHOTO_SIZE = 224
"""Side of a squashed photo in pixels."""

BATCH_SIZE = 16
"""Photos of a training step."""

VALIDATION_PHOTOS = 300
"""The first photos of Flickr8k's validation split, by which the best epoch is chosen."""


@dataclass(frozen=True)
class Folders:
    """The folders of the data. flickr: Flickr8k with its two lists. everyday: the other photos."""

    flickr: Path
    everyday: Path

    def flickr_captions(self, split: str) -> dict[Path, list[str]]:
        """Captions of Flickr8k's `train` or `val`, by photo, in the order of the list."""
        tokens, photos = self.flickr / "Flickr8k.token.txt", self.flickr / "images"
        (examples,) = read_splits("flickr8k", tokens, photos, [str(self.flickr / f"{split}.txt")])
        return {Path(str(each.source)): list(each.captions) for each in examples}

    def everyday_captions(self, split: str) -> dict[Path, list[str]]:
        """Captions of the everyday photos of `train` or `val`, by photo."""
        file = self.everyday / f"captions_{split}.json"
        (examples,) = read_splits("coco", file, self.everyday / "photos")
        return {Path(str(each.source)): list(each.captions) for each in examples}

    def training_photos(self) -> list[Path]:
        """Every photo that may be trained on, with or without captions."""
        return [
            *self.flickr_captions("train"),
            *self.everyday_captions("train"),
            *sorted((self.everyday / "unlabelled").glob("*.jpg")),
        ]

    def validation_photos(self) -> dict[str, list[Path]]:
        """The photos by which the best epoch is chosen, by their source."""
        return {
            "Flickr8k": list(self.flickr_captions("val"))[:VALIDATION_PHOTOS],
            "everyday": list(self.everyday_captions("val")),
        }


def folder_parser(
    description: str | None, trains: bool = False, **folders: str
) -> argparse.ArgumentParser:
    """A parser with `--precision` and folders: those of the photos, and others with their help.

    trains: for `train_on_photos`.
    """
    parser = script_parser(description)
    given = {
        "flickr": "folder of Flickr8k",
        "everyday": "folder of the everyday photos",
        "teachers": "folder of the teachers",
        **folders,
    }
    for name, purpose in given.items():
        parser.add_argument(f"--{name}", type=Path, required=True, help=purpose)
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="bfloat16",
        help="of matrix products; bfloat16 is four times as fast on a processor that has it "
        "(default: %(default)s)",
    )
    if trains:
        resume = "go on with the run in the folder"
        parser.add_argument("--epochs", type=int, required=True)
        parser.add_argument("--resume", action="store_true", help=resume)
    return parser


def squashed(photo: Image.Image) -> Tensor:
    """A photo as (3, 224, 224), uint8."""
    pixels = transforms.pil_to_tensor(photo)  # (3, height, width)
    return transforms.resize(pixels, [PHOTO_SIZE, PHOTO_SIZE], antialias=True)


def load_photos(photos: Sequence[Path]) -> Tensor:
    """Photos squashed to one size: (N, 3, 224, 224), uint8."""
    loaded = torch.empty(len(photos), 3, PHOTO_SIZE, PHOTO_SIZE, dtype=torch.uint8)
    for row, photo in enumerate(photos):
        loaded[row] = squashed(load_image(photo))
    return loaded


def batches(photos: Tensor, task: str = "") -> Iterator[Tensor]:
    """Photos (N, 3, S, S), uint8, as batches of at most 50 in [0, 1]: (B, 3, S, S).

    task: what is done with them, to show progress.
    """
    with progress_bar(task, len(photos), "photos", shown=bool(task)) as progress:
        for part in photos.split(50):
            yield part.float() / 255
            progress.update(len(part))


@dataclass(frozen=True, eq=False)
class Photos(Batches[int, Any]):
    """Photos (N, 3, S, S), uint8, to train on; each is mirrored every second epoch."""

    photos: Tensor

    def plan(self, epoch: int) -> list[list[int]]:
        """Rows of each batch; a smaller batch is left out unless it is the only one."""
        order = torch.randperm(len(self.photos), generator=torch.Generator().manual_seed(epoch))
        rows = [batch.tolist() for batch in order.split(BATCH_SIZE)]
        return rows[: max(1, len(self.photos) // BATCH_SIZE)]

    def part(self, examples: list[int], part: int, part_count: int, place: Place) -> Any:
        """A whole batch: one process trains."""
        epoch, number = place
        rows = torch.tensor(examples)  # (B,)
        mirrored = (rows + epoch) % 2  # (B,)
        pixels = self.photos[rows].float() / 255  # (B, 3, S, S)
        pixels = torch.where(mirrored.view(-1, 1, 1, 1) == 1, pixels.flip(-1), pixels)
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        generator = torch.Generator().manual_seed(epoch * 10**5 + number)
        return self.batch(pixels, rows, mirrored, generator)

    def batch(
        self, pixels: Tensor, rows: Tensor, mirrored: Tensor, generator: torch.Generator
    ) -> Any:
        """What the loss is given: photos (B, 3, S, S) in [0, 1], and what belongs to their rows."""
        return pixels


def train_on_photos(
    model: nn.Module,
    photos: Photos,
    arguments: argparse.Namespace,
    scores: Callable[[], dict[str, float]],
    save: Callable[[], None],
    groups: list[dict[str, Any]] | None = None,
    **settings: Any,
) -> None:
    """Train as the options of `folder_parser` say.

    scores: of the validation photos, by name. save: saves the model; called when their mean is the
        best so far. groups: of the optimiser's parameters. settings: more of the training config.
    """
    config = TrainingConfig(
        epochs=arguments.epochs,
        batch_size=BATCH_SIZE,
        clip_norm=0.0,
        schedule="cosine",
        patience=0,
        precision=arguments.precision,
        **settings,
    )

    def validate() -> Validated:
        by_name = scores()
        return Validated({**by_name, "mean": sum(by_name.values()) / len(by_name)})

    validation = Validation(validate, "mean", lambda validated, epoch: save())
    optimizer = make_optimizer(model, config, groups)
    processes = Processes(next(model.parameters()).device)
    trainer = Trainer(model, photos, config, arguments.out, optimizer, processes, validation)
    trainer.train(arguments.resume)
