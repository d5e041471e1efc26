"""Distil a captioner: it learns to see and to say what better networks do, of every photo.

A VGG is to see what `teachers.TeacherMaps` makes of a photo; one linear layer leads from the
annotation vectors to it. Their mean also learns the class probabilities of a classifier of
ImageNet's 1,001 classes. A decoder that was trained on the teachers' maps reads the linear layer's,
and is to say of them what it said of the teachers' (`teacher_words.py`). The encoder starts from
given weights; `--freeze` leaves its first stages as they are, which halves the time of a step.
`--context` lets it see further than a VGG-11, whose vectors know 134 pixels of the 224:
convolutions behind it begin as the identity and learn by smaller steps (`muon.py`).

Photos are learned from whole, as they are captioned, and mirrored in every second epoch. What the
teachers see of each is computed once, and kept in OUT/targets.safetensors (0.2 MB a view).
OUT/model is the captioner, with the linear layer folded into the decoder.

  python scripts/default_model/distill.py --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --boxes runs/tables --words runs/words/model \\
      --captions runs/tables/all.jsonl --start-from imagenet --epochs 4 --out runs/eyes
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import photos as worlds
import torch
from fold import fold
from muon import Muon
from safetensors.torch import load_file, save_file
from teacher_words import Reading, TeacherWords, divergence
from teachers import GROUPS, SCALES, Boxes, Detector, TeacherMaps, add_precision, load_teacher
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms.v2 import functional as transforms

from captioner.caption import Captioner, ShowAttendTellDecoder, save_model
from captioner.cli.program import run_program
from captioner.files import atomic_path, check_writable
from captioner.progress import progress_bar
from captioner.training import Part, Step, TrainingConfig, Validation, train
from captioner.vision.preprocessing import IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION
from captioner.vision.vgg import ANNOTATION_SIZE, VGGConfig, VGGEncoder
from captioner.vision.weights import build_encoder

CLASSES = 1001
CLASSES_WEIGHT = 0.1
"""Weight of the divergence from the class probabilities, in nats."""

GROUP_WEIGHTS = {"block 10": 1.0, "block 15": 1.0, "things": 0.5}
"""Weights of the mean squared errors."""

WORDS_WEIGHT = 2.0
"""Weight of the divergence from what the teachers' decoder says, in nats a word."""

SAMPLE = 400
"""Photos over which channels are standardised and the linear layer is begun."""

VALIDATION_PHOTOS = 300
"""Photos of Flickr8k's validation split that are looked at."""


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


class Targets(NamedTuple):
    """The teachers' view of N photos, and of their mirror images in rows N and on.

    maps: (2N, 512, 14, 14), float16. classes: (2N, 1001), log-probabilities, float16.
    """

    maps: Tensor
    classes: Tensor


def targets_of(
    photos: Tensor, boxes: Sequence[Boxes], teacher: TeacherMaps, classifier: nn.Module, file: Path
) -> Targets:
    """Targets of photos (N, 3, S, S), uint8; kept in a file, and mapped from it."""
    side = photos.shape[-1] // 16
    shapes = {"maps": (2 * len(photos), 512, side, side), "classes": (2 * len(photos), CLASSES)}
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        empty = {name: torch.empty(shape, dtype=torch.float16) for name, shape in shapes.items()}
        targets = Targets(**empty)
        progress = progress_bar("describing", 2 * len(photos), "photos")
        row = 0
        for mirrored in (False, True):
            for start in range(0, len(photos), 50):
                pixels = photos[start : start + 50].float() / 255  # (B, 3, S, S)
                found = boxes[start : start + 50]
                if mirrored:
                    pixels, found = pixels.flip(-1), [mirror(things) for things in found]
                rows = slice(row, row + len(pixels))
                targets.maps[rows] = teacher(pixels, found)
                logits = classifier(pixels, ["logits"])["logits"]  # (B, 1001)
                targets.classes[rows] = logits.log_softmax(dim=1)
                row += len(pixels)
                progress.update(len(pixels))
        progress.close()
        with atomic_path(file) as temporary:
            save_file(targets._asdict(), temporary)
    return Targets(**load_file(file))


def mirror(boxes: Boxes) -> Boxes:
    """Boxes as they lie in the mirrored photo."""
    left, top, right, bottom = boxes.corners.unbind(dim=1)
    return boxes._replace(corners=torch.stack([1 - right, top, 1 - left, bottom], dim=1))


@dataclass(frozen=True)
class Photos:
    """The training photos in batches, with their targets; each is mirrored every second epoch."""

    unit: ClassVar[str] = "photos"
    photos: Tensor
    targets: Targets
    words: TeacherWords
    batch_size: int
    seed: int

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has; a smaller one is left out where it is not the only one."""
        return max(1, len(self.photos) // self.batch_size)

    def shares(
        self, epoch: int, first: int, rank: int, processes: int, parts: int
    ) -> Generator[Step, None, None]:
        """The batches of an epoch from number `first` on, each whole: one process trains."""
        generator = torch.Generator().manual_seed(self.seed * 1_000 + epoch)
        count = len(self.photos)
        order = torch.randperm(count, generator=generator)
        for number in range(first, self.steps(epoch)):
            rows = order[number * self.batch_size : (number + 1) * self.batch_size]  # (B,)
            generator = torch.Generator().manual_seed((self.seed * 1_000 + epoch) * 10**5 + number)
            mirrored = (rows + epoch) % 2  # (B,)
            pixels = self.photos[rows].float() / 255  # (B, 3, S, S)
            pixels = torch.where(mirrored.view(-1, 1, 1, 1) == 1, pixels.flip(-1), pixels)
            pixels = pixels.contiguous(memory_format=torch.channels_last)
            views = rows + mirrored * count  # (B,)
            target = self.targets.maps[views].float()  # (B, 512, S/16, S/16)
            reading = self.words.read(target, rows.tolist(), generator)
            batch = DistillationBatch(pixels, target, self.targets.classes[views].float(), reading)
            yield Step([Part(batch, len(rows))], len(rows))


def sample(photos: Tensor, boxes: Sequence[Boxes]) -> tuple[list[Tensor], list[list[Boxes]]]:
    """At most `SAMPLE` of the photos, as batches (B, 3, S, S) in [0, 1], and their things."""
    rows = torch.randperm(len(photos), generator=torch.Generator().manual_seed(0))[:SAMPLE]
    pixels = list(worlds.batches(photos[rows], 50))
    return pixels, [[boxes[row] for row in some.tolist()] for some in rows.split(50)]


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
    for number, pixels in enumerate(worlds.batches(photos, 50)):
        seen.append(student(pixels)[0])
        wanted.append(teacher(pixels, boxes[number * 50 : number * 50 + len(pixels)]))
    sizes = list(GROUPS.values())
    pairs = zip(torch.cat(seen).split(sizes, 1), torch.cat(wanted).split(sizes, 1), strict=True)
    return {name: explained_variance(*pair) for name, pair in zip(GROUPS, pairs, strict=True)}


def detect(photos: Tensor, folder: Path, file: Path, precision: str) -> list[Boxes]:
    """The things in photos (N, 3, S, S), uint8; kept in a file, and read from it the next time."""
    if not file.exists():
        detector, found = Detector(folder, precision), []
        progress = progress_bar("detecting", len(photos), "photos")
        for pixels in worlds.batches(photos, 50):
            found += detector(pixels)
            progress.update(len(pixels))
        progress.close()
        counts = torch.tensor([len(boxes.labels) for boxes in found])
        joined = {name: torch.cat([getattr(b, name) for b in found]) for name in Boxes._fields}
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as temporary:
            save_file({"counts": counts, **joined}, temporary)
    stored = load_file(file)
    parts = [stored[name].split(stored["counts"].tolist()) for name in Boxes._fields]
    return [Boxes(*of_photo) for of_photo in zip(*parts, strict=True)]


def main() -> None:
    """Distil."""
    parser = worlds.folder_parser(
        __doc__,
        teachers="folder of the teachers",
        boxes="folder of tables.py, which keeps what the detector sees",
        words="model folder of the decoder that was trained on the teachers' maps",
        captions="all.jsonl of tables.py",
        out="the run's folder",
    )
    parser.add_argument(
        "--start-from", required=True, help="imagenet, random, a weights file or a model folder"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    parser.add_argument("--name", default="vgg11_bn", help="which VGG (default: %(default)s)")
    parser.add_argument(
        "--context",
        type=int,
        nargs="*",
        default=(),
        metavar="DILATION",
        help="of convolutions behind the VGG's (default: none)",
    )
    parser.add_argument("--freeze", type=int, default=0, help="stages left as they are")
    parser.add_argument("--epochs", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=16, help="default: %(default)s")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="default: %(default)s")
    add_precision(parser)
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    arguments = parser.parse_args()
    check_writable("--out", arguments.out)
    folders = worlds.Folders(arguments.flickr, arguments.everyday)
    training_photos = folders.training_photos()
    validation = {
        "Flickr8k": folders.flickr_photos("val")[:VALIDATION_PHOTOS],
        "everyday": list(folders.everyday_captions("val")),
    }
    steps = len(training_photos) // arguments.batch_size * arguments.epochs
    training = TrainingConfig(
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        weight_decay=1e-2,
        clip_norm=0.0,
        schedule="cosine",
        warmup_steps=steps // 20,
        patience=0,
        precision=arguments.precision,
        seed=arguments.seed,
    )
    torch.manual_seed(arguments.seed)
    teachers, precision = arguments.teachers, arguments.precision
    words = TeacherWords(arguments.words, arguments.captions, training_photos, precision)
    config = VGGConfig(name=arguments.name, context=tuple(arguments.context))
    encoder = build_encoder(config, arguments.start_from)
    student = Student(encoder, words.student())
    student.encoder.freeze(arguments.freeze, batch_norm=False)
    photos = worlds.load_photos(training_photos)
    boxes = detect(photos, teachers, arguments.boxes / "boxes.safetensors", precision)
    held_out = {
        name: (
            loaded := worlds.load_photos(paths),
            detect(loaded, teachers, arguments.boxes / f"boxes_{name}.safetensors", precision),
        )
        for name, paths in validation.items()
    }
    teacher = TeacherMaps(teachers, precision)
    teacher.read_scales(arguments.boxes / SCALES)
    pixels, found = sample(photos, boxes)
    student.eval()
    student.begin(pixels, [teacher(*batch) for batch in zip(pixels, found, strict=True)])
    student.to(memory_format=torch.channels_last)

    def validate() -> dict[str, float]:
        scores = {
            f"{world} {group}": value
            for world, (loaded, found) in held_out.items()
            for group, value in explained(student, teacher, loaded, found).items()
        }
        return {**scores, "mean": sum(scores.values()) / len(scores)}

    def keep(scores: dict[str, float]) -> None:
        vectors = [student.annotations(part).flatten(2).transpose(1, 2) for part in pixels]
        decoder = deepcopy(student.decoder)
        fold(decoder, student.maps, torch.cat(vectors))
        known = words.captioner
        captioner = Captioner(
            student.encoder, decoder, known.vocabulary, known.preprocessing, known.search
        )
        save_model(captioner, arguments.out / "model", torch.float32)

    if not arguments.resume:
        with torch.no_grad():
            scores = validate()
        print("before: " + ", ".join(f"{k} {v:.3f}" for k, v in scores.items()), flush=True)
    classifier = load_teacher(teachers, "mobilenet_edgetpu_075", precision)
    targets = targets_of(photos, boxes, teacher, classifier, arguments.out / "targets.safetensors")
    batches = Photos(photos, targets, words, arguments.batch_size, arguments.seed)
    validation_run = Validation(validate, "mean", keep)
    optimizer = Muon(
        student,
        training.learning_rate,
        training.weight_decay,
        slow=student.encoder.context,
        precision=getattr(torch, precision),
    )
    train(student, batches, training, arguments.out, validation_run, arguments.resume, optimizer)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
