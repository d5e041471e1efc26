"""The photos of both worlds that the packaged model learns from, and their captions.

Flickr8k shows people and dogs outdoors; the everyday photos show food, rooms, streets and animals.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

from captioner.data.flickr8k import read_flickr8k
from captioner.errors import UserError
from captioner.files import read_text
from captioner.vision.images import load_image

PHOTO_SIZE = 224
"""Side of a squashed photo in pixels."""

CAPTION_COPIES = 3
"""How often each caption of an everyday photo is listed: Flickr8k has six times as many."""


@dataclass(frozen=True)
class Folders:
    """Where the data lies. flickr: Flickr8k with its two lists. everyday: the other photos."""

    flickr: Path
    everyday: Path

    def flickr_photos(self, split: str) -> list[Path]:
        """Photos of Flickr8k's `train` or `val`, in the order of the list.

        Raises `UserError` for a list that cannot be read.
        """
        names = read_text(self.flickr / f"{split}.txt", "list of photos").split()
        return [self.flickr / "images" / name for name in names]

    def flickr_captions(self, split: str) -> dict[Path, tuple[str, ...]]:
        """Captions of Flickr8k's `train` or `val`, by photo, in the order of the list.

        Raises `UserError` as `read_flickr8k` does.
        """
        captioned = read_flickr8k(
            self.flickr / "Flickr8k.token.txt",
            self.flickr / "images",
            self.flickr / f"{split}.txt",
        )
        return {image.path: tuple(image.captions) for image in captioned.images}

    def everyday_captions(self, split: str) -> dict[Path, list[str]]:
        """Captions of the everyday photos of `train` or `val`, by photo.

        Raises `UserError` for a file that cannot be read or is not in COCO's format.
        """
        file = self.everyday / f"captions_{split}.json"
        try:
            content = json.loads(read_text(file, "captions"))
            photos = {
                image["id"]: self.everyday / "photos" / image["file_name"]
                for image in content["images"]
            }
            captions: dict[Path, list[str]] = {photo: [] for photo in photos.values()}
            for annotation in content["annotations"]:
                captions[photos[annotation["image_id"]]].append(annotation["caption"])
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"captions {file} are not in COCO's format ({error!r})") from None
        return captions

    def unlabelled(self) -> list[Path]:
        """Everyday photos without captions, sorted by name."""
        return sorted((self.everyday / "unlabelled").glob("*.jpg"))

    def training_photos(self) -> list[Path]:
        """Every photo that may be trained on, with or without captions."""
        return [
            *self.flickr_photos("train"),
            *self.everyday_captions("train"),
            *self.unlabelled(),
        ]


def folder_parser(description: str | None, **folders: str) -> argparse.ArgumentParser:
    """A parser with `--flickr`, `--everyday`, and further folders by name with their help."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given = {"flickr": "folder of Flickr8k", "everyday": "folder of the everyday photos", **folders}
    for name, purpose in given.items():
        parser.add_argument(f"--{name}", type=Path, required=True, help=purpose)
    return parser


def load_photos(photos: Sequence[Path]) -> Tensor:
    """All photos, squashed to one size: (N, 3, 224, 224), uint8.

    Raises `UserError` naming the first that cannot be read.
    """
    loaded = torch.empty(len(photos), 3, PHOTO_SIZE, PHOTO_SIZE, dtype=torch.uint8)
    for row, photo in enumerate(photos):
        pixels = transforms.pil_to_tensor(load_image(photo))  # (3, height, width)
        loaded[row] = transforms.resize(pixels, [PHOTO_SIZE, PHOTO_SIZE], antialias=True)
    return loaded


def batches(photos: Tensor, size: int) -> Iterator[Tensor]:
    """Photos (N, 3, S, S), uint8, as batches of at most `size` in [0, 1]: (B, 3, S, S)."""
    for start in range(0, len(photos), size):
        yield photos[start : start + size].float() / 255
