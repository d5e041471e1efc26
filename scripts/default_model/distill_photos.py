"""The photos that an encoder is taught on: read, augmented, and overlaid by one another."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

from captioner.errors import UserError
from captioner.files import read_text
from captioner.vision.augmentation import Augmentation
from captioner.vision.images import load_image

PHOTO_SIZE = 224
AUGMENTATION = Augmentation(crop=0.3, mirror=True, colour=0.3)


def photo_names(file: Path) -> list[str]:
    """The names of photos in a file, one a line.

    Raises `UserError` for a file that cannot be read or that names none.
    """
    lines = read_text(file, "list of photos").split("\n")
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise UserError(f"list of photos {file} names none")
    return names


def load_photos(names: list[str], folder: Path) -> Tensor:
    """All photos, squashed to one size: (N, 3, 224, 224), uint8.

    Raises `UserError` naming the first that cannot be read.
    """
    photos = torch.empty(len(names), 3, PHOTO_SIZE, PHOTO_SIZE, dtype=torch.uint8)
    for index, name in enumerate(names):
        photo = transforms.pil_to_tensor(load_image(folder / name))  # (3, height, width)
        photos[index] = transforms.resize(photo, [PHOTO_SIZE, PHOTO_SIZE], antialias=True)
    return photos


def augment(photos: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Photos (B, 3, S, S), uint8, changed as `AUGMENTATION` says: (B, 3, size, size) in [0, 1]."""
    changed = []
    for photo in photos:
        cut = AUGMENTATION(transforms.to_pil_image(photo), generator)
        pixels = transforms.pil_to_tensor(cut)  # (3, height, width)
        changed.append(transforms.resize(pixels, [size, size], antialias=True))
    return torch.stack(changed).float() / 255  # (B, 3, size, size)


def mixed(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the pictures (B, 3, S, S) blended with another one, or with part of it pasted in."""
    count, _, size, _ = pixels.shape
    others = pixels.roll(1, dims=0)  # (B, 3, S, S)
    result = pixels.clone()
    for index in range(0, count, 2):
        paste, share, top, left = torch.rand(4, generator=generator).tolist()
        if paste < 0.5:
            result[index] = torch.lerp(pixels[index], others[index], share / 2)
            continue
        side = round(size * (0.2 + 0.5 * share))
        rows, columns = (slice(n, n + side) for n in (int(top * size), int(left * size)))
        result[index, :, rows, columns] = others[index, :, rows, columns]
    return result
