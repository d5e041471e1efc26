"""Teach a VGG-shaped encoder to reproduce what teacher networks see.

The teachers (MobileNet v1, Howard et al. 2017, batch normalisation folded in) see the same crop as
the student. One gives two maps: block 11 (512 channels, stride 16) is what the student's own last
map is regressed on, block 12 (1,024 channels, stride 32) what a throw-away head on it is regressed
on. Each of its channels is divided by its standard deviation, so all count alike and the
annotation vectors come out at a scale of about one. The other teacher, where it is given, knows
the thousand classes of ImageNet: a second head learns its probabilities (Hinton et al. 2015,
*Distilling the Knowledge in a Neural Network*). With --mix, half of the photos of a batch are
overlaid by another one, a blend or a pasted rectangle, so that teacher and student meet pictures
that no photo album has (Zhang et al. 2018, *mixup*; Yun et al. 2019, *CutMix*; Beyer et al. 2022,
*Knowledge distillation: a good teacher is patient and consistent*). With --decoder, a decoder that
was trained on block 11 reads captions from the student's map as well as from the teacher's, and is
to say the same next word; see `scripts/default_model/teacher_words.py`.

OUT gets `encoder.safetensors`, the encoder of the best epoch, which `encoder.weights` of a config
may name, and the checkpoint and log of the run; with --decoder also `model`, that decoder with
these eyes, which captions, and which `start_from` may name. A stopped run goes on with --resume.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from distill_photos import augment, load_photos, mixed, photo_names
from safetensors.torch import save_file
from teacher import Classifier, Teacher
from teacher_words import Read, TeacherWords
from torch import Tensor, nn
from torch.nn import functional

from captioner.caption import save_model
from captioner.cli.program import run_program
from captioner.devices import choose_device
from captioner.errors import UserError
from captioner.files import atomic_path, check_writable
from captioner.training import TrainingConfig, Validation, train
from captioner.vision.preprocessing import IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION
from captioner.vision.vgg import ANNOTATION_SIZE, VGGConfig, VGGEncoder
from captioner.vision.weights import build_encoder

LEAST_SIZE = 32
"""Pixels of a crop of which block 12 has a single place."""
LARGEST_SEED = 2**32 - 1
VALIDATION_PHOTOS = 300
CLASSES = 1000
CLASSES_WEIGHT = 0.15
"""Of the divergence, in nats, beside the errors of the maps, which start at one each."""
WORDS_WEIGHT = 2.0
"""Of the divergence of what a decoder says, in nats a word, likewise."""


class DistillationBatch(NamedTuple):
    """Crops (B, 3, S, S) in [0, 1] and what the teachers make of them.

    block_11 (B, 512, S/16, S/16), block_12 (B, 1024, S/32, S/32): in units of each channel's
    standard deviation. classes (B, 1000): logarithms of probabilities, where there is a classifier.
    read: captions and what the decoder said of them, where there is one.
    """

    pixels: Tensor
    block_11: Tensor
    block_12: Tensor
    classes: Tensor | None
    read: Read | None

    def to(self, device: torch.device | str) -> DistillationBatch:
        """The batch on another device."""
        return DistillationBatch(
            self.pixels.to(device),
            self.block_11.to(device),
            self.block_12.to(device),
            None if self.classes is None else self.classes.to(device),
            None if self.read is None else self.read.to(device),
        )


class Student(nn.Module):
    """The encoder, and the heads that only distillation needs.

    words: a decoder that its map is to mean the same to; not trained.
    """

    def __init__(self, config: VGGConfig, words: TeacherWords | None = None) -> None:
        super().__init__()
        self.words = words
        self.encoder = VGGEncoder(config)
        self.head = nn.Sequential(
            nn.Conv2d(ANNOTATION_SIZE, 1024, kernel_size=3, stride=2, bias=False),
            nn.BatchNorm2d(1024),
            nn.ReLU(),
        )
        self.block_12 = nn.Conv2d(1024, 1024, kernel_size=1)
        self.classifier = nn.Linear(1024, CLASSES)
        for name, values in (("mean", IMAGENET_MEAN), ("deviation", IMAGENET_STANDARD_DEVIATION)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels (B, 3, S, S) in [0, 1] -> its blocks 11 and 12, and logits (B, 1000)."""
        block_11 = self.encoder.features(  # (B, 512, S/16, S/16)
            (pixels - self.mean) / self.deviation
        )
        padded = functional.pad(block_11, (0, 1, 0, 1))  # (B, 512, S/16 + 1, S/16 + 1)
        deeper = self.head(padded)  # (B, 1024, S/32, S/32)
        block_12 = functional.relu(self.block_12(deeper))  # (B, 1024, S/32, S/32)
        pooled = deeper.mean(dim=(2, 3))  # (B, 1024)
        return block_11, block_12, self.classifier(pooled)

    def loss(self, batch: DistillationBatch) -> dict[str, Tensor]:
        """Mean squared errors of both maps and, if any, the divergences from classes and words."""
        block_11, block_12, logits = self(batch.pixels)
        losses = {
            "block_11": functional.mse_loss(block_11.float(), batch.block_11),
            "block_12": functional.mse_loss(block_12.float(), batch.block_12),
        }
        total = losses["block_11"] + losses["block_12"]
        if batch.classes is not None:
            said = logits.float().log_softmax(dim=1)
            losses["classes"] = functional.kl_div(
                said, batch.classes, reduction="batchmean", log_target=True
            )
            total = total + CLASSES_WEIGHT * losses["classes"]
        if batch.read is not None and self.words is not None:
            losses["words"] = self.words.divergence(block_11, batch.read)
            total = total + WORDS_WEIGHT * losses["words"]
        return {"loss": total, **losses}


def widened(narrow: VGGEncoder, config: VGGConfig, noise: float = 0.05) -> VGGEncoder:
    """A wider encoder that computes nearly what a narrower one of the same name does.

    Channels are copied at random until there are enough, and what is copied n times is divided by
    n where it is read (Chen et al. 2016, *Net2Net*). Weights are then multiplied by 1 plus `noise`
    times a normal number, so that copies go apart. Draws from torch's own generator.
    """
    wide = VGGEncoder(config)
    sources = torch.arange(3)  # of each channel that the layer reads, the narrow one's
    for old, new in zip(narrow.features, wide.features, strict=True):
        if isinstance(old, nn.Conv2d) and isinstance(new, nn.Conv2d):
            added = torch.randint(old.out_channels, (new.out_channels - old.out_channels,))
            copies = torch.bincount(sources, minlength=old.in_channels)  # (I,)
            weight = (old.weight / copies.view(1, -1, 1, 1))[:, sources]
            sources = torch.cat([torch.arange(old.out_channels), added])
            weight = weight[sources]
            new.weight.data.copy_(weight * (1 + noise * torch.randn_like(weight)))
            assert old.bias is not None
            assert new.bias is not None
            new.bias.data.copy_(old.bias[sources])
        elif isinstance(old, nn.BatchNorm2d):
            for name, values in old.state_dict().items():
                own = new.state_dict()[name]
                own.copy_(values[sources] if values.ndim else values)
    return wide


@dataclass(frozen=True)
class Crops:
    """The training photos in batches, augmented anew each epoch, with the teacher's maps."""

    photos: Tensor
    teacher: Teacher
    classifier: Classifier | None
    words: TeacherWords | None
    scales: list[Tensor]
    mix: bool
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
            pixels = augment(self.photos[rows], self.size, generator)
            if self.mix:
                pixels = mixed(pixels, generator)
            pixels = pixels.to(self.device, memory_format=torch.channels_last)
            classes, read = None, None
            with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16):
                block_11, block_12 = self.teacher(pixels)
                block_11 = block_11.float() / self.scales[0]  # (B, 512, S/16, S/16)
                if self.classifier is not None:
                    classes = self.classifier(pixels).float().log_softmax(dim=1)
                if self.words is not None:
                    read = self.words.read(block_11, rows, generator)
            yield DistillationBatch(
                pixels, block_11, block_12.float() / self.scales[1], classes, read
            )


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
        maps = (*student(pixels)[:2], *teacher(pixels))
        for store, value in zip(outputs, maps, strict=True):
            store.append(value.cpu())
    seen, wanted = [torch.cat(chunks) for chunks in outputs[:2]], outputs[2:]
    scores = {
        name: explained_variance(seen[i], torch.cat(wanted[i]) / scales[i].cpu())
        for i, name in enumerate(("block 11", "block 12"))
    }
    return {**scores, "mean": sum(scores.values()) / 2}


def check_options(arguments: argparse.Namespace) -> None:
    """Raise `UserError`, before any work, for options that cannot be or do not go together."""
    for name, least in (("epochs", 1), ("batch_size", 1), ("size", LEAST_SIZE), ("seed", 0)):
        value = getattr(arguments, name)
        if value < least:
            raise UserError(f"--{name.replace('_', '-')} {value} is not at least {least}")
    if arguments.seed > LARGEST_SEED:
        raise UserError(f"--seed {arguments.seed} is above {LARGEST_SEED}")
    if not 0 < arguments.learning_rate < float("inf"):
        raise UserError(f"--learning-rate {arguments.learning_rate} is not above 0 and finite")
    if arguments.batch_size == 1 and arguments.size < 2 * LEAST_SIZE:
        raise UserError(
            f"--batch-size 1 needs --size {2 * LEAST_SIZE} or more: of one vector there is nothing "
            "to normalise"
        )
    VGGConfig(name=arguments.name, width=arguments.width)
    if arguments.start_width is not None:
        if arguments.start_from is None:
            raise UserError("--start-width is of the weights that --start-from names")
        VGGConfig(name=arguments.name, width=arguments.start_width)
        if arguments.start_width > arguments.width:
            raise UserError(
                f"--start-width {arguments.start_width} is above --width {arguments.width}"
            )
    if (arguments.decoder is None) != (arguments.captions is None):
        raise UserError("--decoder and --captions, which it reads, are given together")
    if arguments.decoder is not None and arguments.mix:
        raise UserError("--decoder reads captions of photos, which --mix overlays by others")
    check_writable("--out", arguments.out)


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
    parser.add_argument(
        "--classifier", type=Path, help="mobilenet_v1_0.75_224.safetensors; its classes as well"
    )
    parser.add_argument(
        "--decoder", type=Path, help="model folder of one that was trained on block 11; its words"
    )
    parser.add_argument("--captions", type=Path, help="for it to read: Flickr8k.token.txt")
    parser.add_argument("--mix", action="store_true", help="overlay photos by others")
    parser.add_argument("--start-from", help="encoder weights, or a model folder, to start with")
    parser.add_argument(
        "--start-width",
        type=float,
        help="of these weights, where they are narrower: they are widened",
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

    check_options(arguments)
    device = choose_device(arguments.device)
    names = photo_names(arguments.train)
    held_out = photo_names(arguments.validation)[:VALIDATION_PHOTOS]
    if arguments.batch_size > len(names):
        raise UserError(
            f"--batch-size {arguments.batch_size} is more than the {len(names)} photos of "
            f"{arguments.train}"
        )
    steps = len(names) // arguments.batch_size * arguments.epochs
    training = TrainingConfig(
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
    )
    config = VGGConfig(name=arguments.name, width=arguments.width)
    words = None
    if arguments.decoder is not None:
        words = TeacherWords(arguments.decoder, arguments.captions, names).to(device)
    torch.manual_seed(arguments.seed)
    teacher = Teacher(arguments.teacher).to(device, memory_format=torch.channels_last)
    classifier = None
    if arguments.classifier is not None:
        classifier = Classifier(arguments.classifier).to(device, memory_format=torch.channels_last)
    student = Student(config, words)
    if arguments.start_from is not None:
        width = arguments.start_width or arguments.width
        start = build_encoder(VGGConfig(name=arguments.name, width=width), arguments.start_from)
        if width < arguments.width:
            start = widened(start, config)
        student.encoder.load_state_dict(start.state_dict())
    student.to(device, memory_format=torch.channels_last)
    photos = load_photos(names, arguments.photos)
    validation_photos = load_photos(held_out, arguments.photos)
    with torch.no_grad():
        sample = teacher(photos[:VALIDATION_PHOTOS].to(device).float() / 255)
    scales = [m.std(dim=(0, 2, 3)).clamp(min=1e-2).view(1, -1, 1, 1) for m in sample]

    def keep(scores: dict[str, float]) -> None:
        tensors = {name: t.cpu().contiguous() for name, t in student.encoder.state_dict().items()}
        with atomic_path(arguments.out / "encoder.safetensors") as temporary:
            save_file(tensors, temporary)
        if words is not None:
            encoder = VGGEncoder(config)
            encoder.load_state_dict(tensors)
            save_model(words.seeing_with(encoder), arguments.out / "model", torch.float32)

    train(
        student,
        Crops(
            photos,
            teacher,
            classifier,
            words,
            scales,
            arguments.mix,
            arguments.batch_size,
            arguments.size,
            arguments.seed,
            device,
        ),
        training,
        arguments.out,
        Validation(
            lambda: evaluate(student, teacher, scales, validation_photos, device), "mean", keep
        ),
        arguments.resume,
    )


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
