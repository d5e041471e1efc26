"""Teach a VGG-shaped encoder to reproduce the feature maps of a teacher network.

The teacher (MobileNet v1, Howard et al. 2017, batch normalisation folded in) sees the same crop
as the student and gives two maps: block 11 (512 channels, stride 16) is what the student's own
last map is regressed on, block 12 (1,024 channels, stride 32) what a throw-away head on it is
regressed on. Each teacher channel is divided by its standard deviation, so all count alike and
the annotation vectors come out at a scale of about one.

OUT gets `encoder.safetensors`, the encoder of the best epoch, which `encoder.weights` of a config
may name, and the checkpoint and log of the run. A stopped run goes on with --resume.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from teacher import Teacher
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms.v2 import functional as transforms

from captioner.cli.program import run_program
from captioner.devices import choose_device
from captioner.files import atomic_path, read_text
from captioner.training import TrainingConfig, Validation, train
from captioner.vision.images import load_image
from captioner.vision.preprocessing import IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION
from captioner.vision.vgg import ANNOTATION_SIZE, VGGConfig, VGGEncoder

PHOTO_SIZE = 224
VALIDATION_PHOTOS = 300


class DistillationBatch(NamedTuple):
    """Crops (B, 3, S, S) in [0, 1] and what the teacher makes of them, in channel units."""

    pixels: Tensor
    block_11: Tensor
    block_12: Tensor

    def to(self, device: torch.device | str) -> DistillationBatch:
        """The batch on another device."""
        return DistillationBatch(*(tensor.to(device) for tensor in self))


class Student(nn.Module):
    """The encoder, and the head that only distillation needs."""

    def __init__(self, config: VGGConfig) -> None:
        super().__init__()
        self.encoder = VGGEncoder(config)
        self.head = nn.Conv2d(ANNOTATION_SIZE, 1024, kernel_size=3, stride=2)
        for name, values in (("mean", IMAGENET_MEAN), ("deviation", IMAGENET_STANDARD_DEVIATION)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, S, S) in [0, 1] -> what it makes of block 11 and of block 12."""
        block_11 = self.encoder.features((pixels - self.mean) / self.deviation)
        block_12 = self.head(functional.pad(block_11, (0, 1, 0, 1)))  # (B, 1024, S/32, S/32)
        return block_11, functional.relu(block_12)

    def loss(self, batch: DistillationBatch) -> dict[str, Tensor]:
        """Mean squared errors of both maps, added."""
        block_11, block_12 = self(batch.pixels)
        errors = (
            functional.mse_loss(block_11.float(), batch.block_11),
            functional.mse_loss(block_12.float(), batch.block_12),
        )
        return {"loss": errors[0] + errors[1], "block_11": errors[0], "block_12": errors[1]}


def load_photos(names: list[str], folder: Path) -> Tensor:
    """All photos, squashed to one size: (N, 3, 224, 224), uint8."""
    photos = torch.empty(len(names), 3, PHOTO_SIZE, PHOTO_SIZE, dtype=torch.uint8)
    for index, name in enumerate(names):
        photo = transforms.pil_to_tensor(load_image(folder / name))  # (3, height, width)
        photos[index] = transforms.resize(photo, [PHOTO_SIZE, PHOTO_SIZE], antialias=True)
    return photos


def augment(photos: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Random crops, flips, brightness, contrast and saturation: (B, 3, size, size) in [0, 1]."""
    full = photos.shape[-1]
    crops = []
    for photo in photos:
        area, aspect, top, left, flip = torch.rand(5, generator=generator).tolist()
        side = full * (0.3 + 0.7 * area) ** 0.5
        ratio = (3 / 4) ** (aspect - 0.5)
        height, width = (min(full, round(side * r)) for r in (ratio, 1 / ratio))
        box = (round(top * (full - height)), round(left * (full - width)), height, width)
        crop = transforms.resized_crop(photo, *box, [size, size], antialias=True)
        crops.append(crop.flip(-1) if flip < 0.5 else crop)  # (3, size, size)
    pixels = torch.stack(crops).float() / 255  # (B, 3, size, size)
    factors = 1 + 0.3 * (2 * torch.rand(3, len(photos), 1, 1, 1, generator=generator) - 1)
    pixels = pixels * factors[0]
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)  # (B, 1, 1, 1)
    pixels = mean + (pixels - mean) * factors[1]
    grey = pixels.mean(dim=1, keepdim=True)  # (B, 1, size, size)
    return (grey + (pixels - grey) * factors[2]).clamp(0, 1)


@dataclass(frozen=True)
class Crops:
    """The training photos in batches, augmented anew each epoch, with the teacher's maps."""

    photos: Tensor
    teacher: Teacher
    scales: list[Tensor]
    batch_size: int
    size: int
    seed: int
    device: torch.device

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has; a last smaller one is left out."""
        return len(self.photos) // self.batch_size

    def batches(self, epoch: int, first: int) -> Iterator[DistillationBatch]:
        """The batches of an epoch from number `first` on."""
        seed = self.seed * 1_000 + epoch
        order = torch.randperm(len(self.photos), generator=torch.Generator().manual_seed(seed))
        for number in range(first, self.steps(epoch)):
            rows = order[number * self.batch_size : (number + 1) * self.batch_size]
            generator = torch.Generator().manual_seed(seed * 100_000 + number)
            pixels = augment(self.photos[rows], self.size, generator).to(self.device)
            pixels = pixels.to(memory_format=torch.channels_last)
            with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16):
                targets = self.teacher(pixels)
            scaled = [t.float() / s for t, s in zip(targets, self.scales, strict=True)]
            yield DistillationBatch(pixels, *scaled)


def explained_variance(predicted: Tensor, target: Tensor) -> float:
    """1 - residual / variance about each channel's mean; maps (N, C, h, w)."""
    residual = (predicted - target).square().sum()
    return 1 - float(residual / (target - target.mean(dim=(0, 2, 3), keepdim=True)).square().sum())


def evaluate(
    student: Student, teacher: Teacher, scales: list[Tensor], photos: Tensor, device: torch.device
) -> dict[str, float]:
    """What share of the variance of the teacher's maps of whole photos the student explains."""
    outputs: list[list[Tensor]] = [[], [], [], []]
    for start in range(0, len(photos), 50):
        pixels = photos[start : start + 50].to(device).float() / 255
        for store, value in zip(outputs, (*student(pixels), *teacher(pixels)), strict=True):
            store.append(value.cpu())
    maps = [torch.cat(chunks) for chunks in outputs]
    names = ("block 11", "block 12")
    return {
        name: explained_variance(maps[i], maps[2 + i] / scales[i].cpu())
        for i, name in enumerate(names)
    }


def main() -> None:
    """Distil."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, required=True, help="folder of photos")
    parser.add_argument("--train", type=Path, required=True, help="file with one photo name a line")
    parser.add_argument("--validation", type=Path, required=True, help="likewise, for the figures")
    parser.add_argument(
        "--teacher", type=Path, required=True, help="mobilenet_v1_1.0_224.safetensors"
    )
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    parser.add_argument("--name", default="vgg11_bn", help="which VGG (default: %(default)s)")
    parser.add_argument("--width", type=float, default=0.5, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=14, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument(
        "--size", type=int, default=160, help="crop in pixels (default: %(default)s)"
    )
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--device", default="auto", help="default: %(default)s")
    arguments = parser.parse_args()

    device = choose_device(arguments.device)
    names = read_text(arguments.train, "list of photos").split()
    held_out = read_text(arguments.validation, "list of photos").split()[:VALIDATION_PHOTOS]
    photos = load_photos(names, arguments.photos)
    validation_photos = load_photos(held_out, arguments.photos)
    torch.manual_seed(arguments.seed)
    teacher = Teacher(arguments.teacher).to(device, memory_format=torch.channels_last)
    student = Student(VGGConfig(arguments.name, arguments.width))
    student.to(device, memory_format=torch.channels_last)
    with torch.no_grad():
        sample = teacher(photos[:VALIDATION_PHOTOS].to(device).float() / 255)
    scales = [m.std(dim=(0, 2, 3)).clamp(min=1e-2).view(1, -1, 1, 1) for m in sample]

    def keep(scores: dict[str, float]) -> None:
        tensors = {name: t.cpu().contiguous() for name, t in student.encoder.state_dict().items()}
        with atomic_path(arguments.out / "encoder.safetensors") as temporary:
            save_file(tensors, temporary)

    steps = len(photos) // arguments.batch_size * arguments.epochs
    train(
        student,
        Crops(
            photos, teacher, scales, arguments.batch_size, arguments.size, arguments.seed, device
        ),
        TrainingConfig(
            epochs=arguments.epochs,
            batch_size=arguments.batch_size,
            learning_rate=arguments.learning_rate,
            weight_decay=1e-2,
            clip_norm=0.0,
            schedule="cosine",
            warmup_steps=steps // 10,
            patience=0,
            precision="bfloat16",
            seed=arguments.seed,
        ),
        arguments.out,
        Validation(
            lambda: evaluate(student, teacher, scales, validation_photos, device), "block 11", keep
        ),
        arguments.resume,
    )


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
