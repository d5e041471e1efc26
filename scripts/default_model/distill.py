"""Distil a captioner: it learns to see and to say what better networks do, of every photo.

A VGG is to see what `teachers.TeacherMaps` makes of a photo; one linear layer leads from the
annotation vectors to it. Their mean also learns the class probabilities of a classifier of
ImageNet's 1,001 classes. A decoder that was trained on the teachers' maps reads the linear layer's,
and is to say of them what it said of the teachers' (`teacher_words.py`). The encoder starts from
given weights; its first stages stay as they are, which halves the time of a step. To see further
than a VGG-11, whose vectors know 134 pixels of the 224, it has dilated convolutions behind it,
which begin as the identity and learn by smaller steps (`muon.py`).

Photos are learned from whole, as they are captioned, and mirrored in every second epoch. What the
teachers see of each is computed once, and kept in OUT/targets.safetensors (0.2 MB a view).
OUT/model is the captioner, with the linear layer folded into the decoder.

  python scripts/default_model/distill.py --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --tables runs/tables --words runs/words/model \\
      --start-from imagenet --epochs 4 --out runs/eyes
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from fold import fold
from muon import Muon
from photos import Folders, batches, folder_parser, kept, load_photos
from teacher_words import Reading, TeacherWords, divergence
from teachers import GROUPS, SCALES, Boxes, TeacherMaps, detect, load_teacher, mirror, sample
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms.v2 import functional as transforms

from captioner.caption import Captioner, ShowAttendTellDecoder, save_model
from captioner.cli.program import run_program
from captioner.training import MicroBatch, Step, TrainingConfig, Validation, train
from captioner.vision.encoders import build_encoder
from captioner.vision.preprocessing import IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION
from captioner.vision.vgg import ANNOTATION_SIZE, VGGConfig, VGGEncoder

ENCODER = VGGConfig(name="vgg11_bn", context=(2, 4))

FROZEN = 2
"""Stages of the encoder that stay as they are."""

BATCH_SIZE = 16
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-2

CLASSES = 1001
CLASSES_WEIGHT = 0.1
"""Weight of the divergence from the class probabilities, in nats."""

GROUP_WEIGHTS = {"block 10": 1.0, "block 15": 1.0, "things": 0.5}
"""Weights of the mean squared errors."""

WORDS_WEIGHT = 2.0
"""Weight of the divergence from what the teachers' decoder says, in nats a word."""


class DistillationBatch(NamedTuple):
    """Photos (B, 3, S, S) in [0, 1], their target (B, 512, S/16, S/16) and classes (B, 1001).

    classes: log-probabilities. reading: captions, and what the teachers' decoder says of them.
    """

    pixels: Tensor
    target: Tensor
    classes: Tensor
    reading: Reading

    def to(self, device: torch.device | str) -> DistillationBatch:
        """The batch on another device."""
        return DistillationBatch(*(tensor.to(device) for tensor in self))


class Student(nn.Module):
    """The encoder, two linear layers that read its annotation vectors, and the decoder."""

    def __init__(self, encoder: VGGEncoder, decoder: ShowAttendTellDecoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.maps = nn.Conv2d(ANNOTATION_SIZE, sum(GROUPS.values()), kernel_size=1)
        self.classifier = nn.Linear(ANNOTATION_SIZE, CLASSES)

    def annotations(self, pixels: Tensor) -> Tensor:
        """Photos (B, 3, S, S) in [0, 1] -> annotation vectors as a map (B, 512, S/16, S/16)."""
        side = pixels.shape[-1] // 16
        pixels = transforms.normalize(pixels, IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION)
        vectors: Tensor = self.encoder(pixels)  # (B, L, 512)
        return vectors.transpose(1, 2).unflatten(2, (side, side))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Photos (B, 3, S, S) in [0, 1] -> maps (B, 512, S/16, S/16) and logits (B, 1001)."""
        annotations = self.annotations(pixels)
        return self.maps(annotations), self.classifier(annotations.mean(dim=(2, 3)))

    def loss(self, batch: DistillationBatch) -> dict[str, Tensor]:
        """Mean squared error of each group of channels, and both divergences."""
        maps, logits = self(batch.pixels)
        sizes = list(GROUPS.values())
        parts = zip(maps.float().split(sizes, 1), batch.target.split(sizes, 1), strict=True)
        report = {
            name: functional.mse_loss(seen, wanted)
            for name, (seen, wanted) in zip(GROUPS, parts, strict=True)
        }
        report["classes"] = functional.kl_div(
            logits.float().log_softmax(dim=1), batch.classes, reduction="batchmean", log_target=True
        )
        report["words"] = divergence(self.decoder, maps, batch.reading)
        weights = {**GROUP_WEIGHTS, "classes": CLASSES_WEIGHT, "words": WORDS_WEIGHT}
        return {
            "loss": torch.stack([weights[name] * report[name] for name in report]).sum(),
            **report,
        }

    @torch.no_grad()
    def begin(self, pixels: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        """Set the linear layer to the least squares solution over photos, in batches."""
        self._begin_context(torch.cat([self.annotations(part) for part in pixels]))
        gram = torch.zeros(ANNOTATION_SIZE + 1, ANNOTATION_SIZE + 1, dtype=torch.float64)
        cross = torch.zeros(ANNOTATION_SIZE + 1, sum(GROUPS.values()), dtype=torch.float64)
        for part, target in zip(pixels, targets, strict=True):
            vectors = self.annotations(part).permute(0, 2, 3, 1).flatten(0, 2)  # (B L, 512)
            vectors = functional.pad(vectors, (0, 1), value=1.0).double()  # (B L, 513)
            gram += vectors.T @ vectors
            cross += vectors.T @ target.permute(0, 2, 3, 1).flatten(0, 2).double()
        ridge = 1e-3 * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
        solution = torch.linalg.solve(gram + ridge, cross).float()  # (513, 512)
        assert self.maps.bias is not None
        self.maps.weight.copy_(solution[:-1].T[:, :, None, None])
        self.maps.bias.copy_(solution[-1])

    def _begin_context(self, annotations: Tensor) -> None:
        """Let new context change nothing in training either, where batches are normalised."""
        variance, mean = torch.var_mean(annotations, dim=(0, 2, 3))  # (512,) each
        for layer in self.encoder.context:
            if isinstance(layer, nn.BatchNorm2d) and layer.num_batches_tracked == 0:
                layer.running_mean, layer.running_var = mean.clone(), variance.clone()
                layer.weight.copy_((variance + layer.eps).sqrt())
                layer.bias.copy_(mean)


def make_targets(
    photos: Tensor, boxes: Sequence[Boxes], teacher: TeacherMaps, classifier: nn.Module
) -> dict[str, Tensor]:
    """The teachers' view of photos (N, 3, S, S), uint8, and of their mirror images behind them.

    `maps`: (2N, 512, S/16, S/16), float16. `classes`: (2N, 1001), log-probabilities, float16.
    """
    count, side = 2 * len(photos), photos.shape[-1] // 16
    maps = torch.empty(count, sum(GROUPS.values()), side, side, dtype=torch.float16)
    classes = torch.empty(count, CLASSES, dtype=torch.float16)
    mirrored = (pixels.flip(-1) for pixels in batches(photos, "describing mirror images"))
    things = [*boxes, *map(mirror, boxes)]
    row = 0
    for pixels in chain(batches(photos, "describing"), mirrored):
        rows = slice(row, row + len(pixels))
        maps[rows] = teacher(pixels, things[rows])
        classes[rows] = classifier(pixels, ["logits"])["logits"].log_softmax(dim=1)
        row = rows.stop
    return {"maps": maps, "classes": classes}


@dataclass(frozen=True)
class Photos:
    """The training photos (N, 3, S, S) in batches; each is mirrored every second epoch.

    targets: of `make_targets`.
    """

    unit: ClassVar[str] = "photos"
    photos: Tensor
    targets: dict[str, Tensor]
    words: TeacherWords
    batch_size: int

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has; a smaller one is left out where it is not the only one."""
        return max(1, len(self.photos) // self.batch_size)

    def batches(
        self, epoch: int, first: int, rank: int, world_size: int, micro_batches: int
    ) -> Generator[Step, None, None]:
        """The batches of an epoch from number `first` on, each whole: one process trains."""
        generator = torch.Generator().manual_seed(epoch)
        count = len(self.photos)
        order = torch.randperm(count, generator=generator)
        for number in range(first, self.steps(epoch)):
            rows = order[number * self.batch_size : (number + 1) * self.batch_size]  # (B,)
            generator = torch.Generator().manual_seed(epoch * 10**5 + number)
            mirrored = (rows + epoch) % 2  # (B,)
            pixels = self.photos[rows].float() / 255  # (B, 3, S, S)
            pixels = torch.where(mirrored.view(-1, 1, 1, 1) == 1, pixels.flip(-1), pixels)
            pixels = pixels.contiguous(memory_format=torch.channels_last)
            views = rows + mirrored * count  # (B,)
            target = self.targets["maps"][views].float()  # (B, 512, S/16, S/16)
            classes = self.targets["classes"][views].float()  # (B, 1001)
            reading = self.words.read(target, rows.tolist(), generator)
            batch = DistillationBatch(pixels, target, classes, reading)
            yield Step([MicroBatch(batch, len(rows))], len(rows))


def explained_variance(seen: Tensor, target: Tensor) -> float:
    """1 - residual / variance about each channel's mean, of maps (N, C, h, w)."""
    residual = (seen - target).square().sum()
    variance = (target - target.mean(dim=(0, 2, 3), keepdim=True)).square().sum()
    return 1 - float(residual / variance.clamp(min=1e-6))


def explained(
    student: Student, teacher: TeacherMaps, photos: Tensor, boxes: Sequence[Boxes]
) -> dict[str, float]:
    """What share of the variance of each group of channels the student explains."""
    seen, wanted = [], []
    for number, pixels in enumerate(batches(photos)):
        seen.append(student(pixels)[0])
        wanted.append(teacher(pixels, boxes[number * 50 : number * 50 + len(pixels)]))
    sizes = list(GROUPS.values())
    pairs = zip(torch.cat(seen).split(sizes, 1), torch.cat(wanted).split(sizes, 1), strict=True)
    return {name: explained_variance(*pair) for name, pair in zip(GROUPS, pairs, strict=True)}


def main() -> None:
    """Distil."""
    parser = folder_parser(
        __doc__,
        teachers="folder of the teachers",
        tables="folder that tables.py wrote",
        words="model folder of the decoder that was trained on the teachers' maps",
        out="the run's folder",
    )
    parser.add_argument(
        "--start-from", required=True, help="imagenet, random, a weights file or a model folder"
    )
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    arguments = parser.parse_args()
    teachers, tables, out = arguments.teachers, arguments.tables, arguments.out
    precision = arguments.precision
    folders = Folders(arguments.flickr, arguments.everyday)
    paths = folders.training_photos()

    def look(photos: list[Path], name: str) -> tuple[Tensor, list[Boxes]]:
        loaded = load_photos(photos)
        return loaded, detect(loaded, teachers, tables / f"boxes_{name}.safetensors", precision)

    torch.manual_seed(0)
    words = TeacherWords(arguments.words, tables / "all.jsonl", paths, precision)
    student = Student(build_encoder(ENCODER, arguments.start_from), words.student())
    student.encoder.freeze(FROZEN, batch_norm=False)
    photos, boxes = look(paths, "training")
    held_out = {name: look(few, name) for name, few in folders.validation_photos().items()}
    teacher = TeacherMaps(teachers, precision, tables / SCALES)
    pixels, found = sample(photos, boxes)
    student.eval()
    student.begin(pixels, [teacher(*batch) for batch in zip(pixels, found, strict=True)])
    student.to(memory_format=torch.channels_last)

    def validate() -> dict[str, float]:
        scores = {
            f"{world} {group}": value
            for world, seen in held_out.items()
            for group, value in explained(student, teacher, *seen).items()
        }
        return {**scores, "mean": sum(scores.values()) / len(scores)}

    def keep(scores: dict[str, float], epoch: int) -> None:
        vectors = [student.annotations(part).flatten(2).transpose(1, 2) for part in pixels]
        decoder = deepcopy(student.decoder)
        fold(decoder, student.maps, torch.cat(vectors))
        known = words.captioner
        captioner = Captioner(
            student.encoder, decoder, known.vocabulary, known.preprocessing, known.search
        )
        save_model(captioner, out / "model", torch.float32)

    classifier = load_teacher(teachers, "mobilenet_edgetpu_075", precision)
    targets = kept(
        out / "targets.safetensors", lambda: make_targets(photos, boxes, teacher, classifier)
    )
    training = TrainingConfig(
        epochs=arguments.epochs,
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        clip_norm=0.0,
        schedule="cosine",
        warmup_steps=len(paths) // BATCH_SIZE * arguments.epochs // 20,
        patience=0,
        precision=precision,
    )
    optimizer = Muon(
        student, LEARNING_RATE, WEIGHT_DECAY, student.encoder.context, getattr(torch, precision)
    )
    train(
        student,
        Photos(photos, targets, words, BATCH_SIZE),
        training,
        out,
        Validation(validate, "mean", keep),
        arguments.resume,
        optimizer,
    )


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
