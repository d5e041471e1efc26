"""Distil a captioner: it learns to see and to say what its teachers do, of every photo.

A VGG is to see `teachers.TeacherMaps`; one linear layer leads from its annotation vectors to them.
A decoder that was trained on the teachers' maps reads the linear layer's, and is to give each next
word the probability that it had with the teachers' (Hinton et al. 2015, *Distilling the Knowledge
in a Neural Network*): so the student learns best what words need. To see further than a VGG-11,
whose vectors know 134 pixels of the 224, it has dilated convolutions behind it, which begin as the
identity and learn by smaller steps. The first stages stay as they are, which halves the time of a
step.

Photos are learned from whole, as they are captioned, and mirrored in every second epoch. Those that
nobody captioned are read with the captions that the decoder finds for the teachers' maps (Kim and
Rush 2016, *Sequence-Level Knowledge Distillation*). The maps are computed once and kept in
OUT/targets.safetensors (0.2 MB a view). OUT/model is the captioner, with the linear layer folded
into the decoder.

  python scripts/default_model/distill.py --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --people runs/tables/people.jsonl --words runs/words/model \\
      --scales runs/teacher_maps/scales.safetensors --start-from imagenet --epochs 7 --out runs/eyes
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from photos import BATCH_SIZE, Folders, Photos, batches, folder_parser, load_photos, train_on_photos
from safetensors.torch import load_file
from teachers import GROUPS, TeacherMaps
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms.v2 import functional as transforms

from captioner.backends.torch_captions import networks_of
from captioner.caption.captioner import Captioner
from captioner.caption.folder import load_model, save_model
from captioner.cli.program import run_program
from captioner.data.readers import read_splits
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.module_weights import write_tensors
from captioner.progress import progress_bar
from captioner.text.token_batches import collate_captions
from captioner.vision.encoder import ANNOTATION_SIZE, VGGEncoder
from captioner.vision.encoder_config import VGGConfig
from captioner.vision.encoder_families import build_encoder
from captioner.vision.preprocessing import IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION

ENCODER = VGGConfig(name="vgg11_bn", context=(2, 4))

FROZEN = 2
"""Stages of the encoder that stay as they are."""

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-2

CONTEXT_LEARNING_RATE = 1e-4
"""Of the kernels that begin as the identity; larger steps spoil what they pass on."""

SAMPLE = 400
"""Photos over which the linear layer is begun and folded."""

CAPTIONS_READ = 2
"""K, the captions of a photo that are read in a step, drawn at random."""

CAPTIONS_FOUND = 3
"""Captions of a photo that nobody captioned."""

MAXIMUM_LENGTH = 30

GROUP_WEIGHTS = {"block 10": 1.0, "block 15": 1.0, "things": 0.5}
"""Weights of the mean squared errors."""

WORDS_WEIGHT = 2.0
"""Weight of the divergence from the teachers' decoder, in nats a word."""


class DistillationBatch(NamedTuple):
    """Photos (B, 3, S, S) in [0, 1], target maps (B, 512, S/16, S/16) and captions (B, K, T).

    mask: (B, K, T), False for padding.
    """

    pixels: Tensor
    target: Tensor
    words: Tensor
    mask: Tensor

    def to(self, device: torch.device | str) -> DistillationBatch:
        """The batch on another device."""
        return DistillationBatch(*(tensor.to(device) for tensor in self))


class Student(nn.Module):
    """The encoder, a linear layer that reads its annotation vectors, and the decoder behind that.

    teacher: the decoder of the teachers' maps, of which the student has a copy.
    """

    def __init__(self, encoder: VGGEncoder, teacher: ShowAttendTellDecoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.maps = nn.Conv2d(ANNOTATION_SIZE, sum(GROUPS.values()), kernel_size=1)
        self.decoder = deepcopy(teacher).requires_grad_(True)
        self._teacher = (teacher.requires_grad_(False),)  # In a tuple: it is not trained.

    def annotations(self, pixels: Tensor) -> Tensor:
        """Photos (B, 3, S, S) in [0, 1] -> annotation vectors as a map (B, 512, S/16, S/16)."""
        side = pixels.shape[-1] // 16
        pixels = transforms.normalize(pixels, IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION)
        vectors: Tensor = self.encoder(pixels)  # (B, L, 512)
        return vectors.transpose(1, 2).unflatten(2, (side, side))

    def forward(self, pixels: Tensor) -> Tensor:
        """Photos (B, 3, S, S) in [0, 1] -> maps (B, 512, S/16, S/16)."""
        maps: Tensor = self.maps(self.annotations(pixels))
        return maps

    def loss(self, batch: DistillationBatch) -> dict[str, Tensor]:
        """Mean squared error of each group of channels, and the divergence of the words."""
        maps, sizes = self(batch.pixels), list(GROUPS.values())
        both = maps.float().split(sizes, 1), batch.target.split(sizes, 1)
        errors = map(functional.mse_loss, *both)
        report = dict(zip(GROUPS, errors, strict=True))
        with torch.no_grad():
            wanted = word_scores(self._teacher[0], batch.target, batch.words)
        scores = word_scores(self.decoder, maps, batch.words)  # (B, K, T, V)
        report["words"] = functional.kl_div(
            scores[batch.mask], wanted[batch.mask], reduction="batchmean", log_target=True
        )
        weights = {**GROUP_WEIGHTS, "words": WORDS_WEIGHT}
        return {"loss": sum(weights[name] * report[name] for name in report), **report}

    @torch.no_grad()
    def begin(self, photos: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        """Set the linear layer to the least squares solution over photos, in batches."""
        self._begin_context(torch.cat([self.annotations(part) for part in photos]))
        gram = torch.zeros(ANNOTATION_SIZE + 1, ANNOTATION_SIZE + 1, dtype=torch.float64)
        cross = torch.zeros(ANNOTATION_SIZE + 1, sum(GROUPS.values()), dtype=torch.float64)
        for part, target in zip(photos, targets, strict=True):
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

    @torch.no_grad()
    def folded(self, photos: Sequence[Tensor]) -> ShowAttendTellDecoder:
        """The decoder with the linear layer W a + b in every matrix that reads annotation vectors.

        It reads the vectors a, standardised over photos, in batches. What is left of the constants
        is close to zero if the decoder's own mean is that of W a + b, and is dropped.
        """
        decoder = deepcopy(self.decoder)
        standardisation = decoder.standardisation
        wanted = standardisation.deviation.clone()  # (D,)
        vectors = [self.annotations(part).flatten(2).transpose(1, 2) for part in photos]
        standardisation.fit(vectors)
        weight = self.maps.weight.flatten(1)  # (D, D)
        matrix = weight * standardisation.deviation / wanted[:, None]  # (D, D)
        for reader in (
            decoder.attention.score.key_projection.weight,
            decoder.lstm.weight_ih[:, decoder.config.embedding_size :],
            decoder.initial_hidden.weight,
            decoder.initial_cell.weight,
            decoder.output_context.weight,
        ):
            reader.copy_(reader @ matrix)
        return decoder


def word_scores(decoder: ShowAttendTellDecoder, maps: Tensor, words: Tensor) -> Tensor:
    """Log-probabilities (B, K, T, V) of the words after those fed (B, K, T), given (B, D, h, w)."""
    annotations = maps.flatten(2).transpose(1, 2)  # (B, L, D)
    logits: Tensor = decoder(decoder.remember(annotations), words).logits  # (B, K, T, V)
    return logits.float().log_softmax(dim=-1)


def make_targets(photos: Tensor, teacher: TeacherMaps) -> Tensor:
    """The teachers' maps of photos (N, 3, S, S), uint8, and of their mirror images behind them.

    (2N, 512, S/16, S/16), float16.
    """
    count, side = len(photos), photos.shape[-1] // 16
    maps = torch.empty(2 * count, sum(GROUPS.values()), side, side, dtype=torch.float16)
    for mirrored, task in ((False, "describing"), (True, "describing mirror images")):
        first = count * mirrored
        for pixels in batches(photos, task):
            maps[first : first + len(pixels)] = teacher(pixels.flip(-1) if mirrored else pixels)
            first += len(pixels)
    return maps


def captions_to_read(
    captioner: Captioner, table: Path, photos: Sequence[Path], maps: Tensor
) -> list[list[list[int]]]:
    """Captions of each photo, as tokens: people's, else those found for its maps (N, 512, h, w)."""
    (examples,) = read_splits("table", table, splits=["train"])
    people = {each.name: each.words for each in examples}
    words = [people.get(str(photo.resolve()), []) for photo in photos]
    missing = [row for row, captions in enumerate(words) if not captions]
    search = captioner.search.override(n_best=CAPTIONS_FOUND)
    with progress_bar("captioning", len(missing), "photos") as progress:
        for start in range(0, len(missing), 50):
            rows = missing[start : start + 50]
            annotations = maps[rows].float().flatten(2).transpose(1, 2)  # (B, L, 512)
            found = captioner.caption_annotations(annotations, search)
            for row, caption in zip(rows, found, strict=True):
                words[row] = [list(each.words) for each in (caption, *caption.alternatives)]
            progress.update(len(rows))
    encode = networks_of(captioner.backend).vocabulary.encode
    return [[encode(each)[:MAXIMUM_LENGTH] for each in of_photo] for of_photo in words]


@dataclass(frozen=True)
class DescribedPhotos(Photos):
    """Photos with their targets of `make_targets` and captions of `captions_to_read`."""

    targets: Tensor
    captions: Sequence[Sequence[Sequence[int]]]

    def batch(
        self, pixels: Tensor, rows: Tensor, mirrored: Tensor, generator: torch.Generator
    ) -> DistillationBatch:
        """With the maps, and K captions of each of B photos, to be fed: (B, K, T)."""
        drawn = []
        for row in rows.tolist():
            choice = torch.randint(len(self.captions[row]), (CAPTIONS_READ,), generator=generator)
            drawn += [self.captions[row][place] for place in choice.tolist()]
        words, _, mask = collate_captions(drawn)
        target = self.targets[rows + mirrored * len(self.photos)].float()
        shape = (len(rows), CAPTIONS_READ, -1)
        return DistillationBatch(pixels, target, words.view(shape), mask.view(shape))


@torch.no_grad()
def explained(student: Student, photos: Tensor, target: Tensor) -> dict[str, float]:
    """The share of the variance of each group of channels that the student explains."""
    seen = torch.cat([student(pixels) for pixels in batches(photos)])  # (N, 512, S/16, S/16)
    residual = (seen - target).square().sum(dim=(0, 2, 3))  # (512,)
    mean = target.mean(dim=(0, 2, 3), keepdim=True)
    variance = (target - mean).square().sum(dim=(0, 2, 3))  # (512,)
    sizes = list(GROUPS.values())
    parts = zip(GROUPS, residual.split(sizes), variance.split(sizes), strict=True)
    return {name: 1 - float(left.sum() / whole.sum().clamp(1e-6)) for name, left, whole in parts}


def main() -> None:
    """Distil."""
    parser = folder_parser(
        __doc__,
        trains=True,
        people="table of people's captions that tables.py wrote",
        scales="file that teacher_features.py wrote",
        words="model folder of the decoder that was trained on the teachers' maps",
        out="the run's folder",
    )
    parser.add_argument(
        "--start-from", required=True, help="imagenet, random, a weights file or a model folder"
    )
    arguments = parser.parse_args()
    folders = Folders(arguments.flickr, arguments.everyday)
    paths = folders.training_photos()
    photos = load_photos(paths)
    teacher = TeacherMaps(arguments.teachers, arguments.precision, arguments.scales)
    stored = arguments.out / "targets.safetensors"
    if not stored.exists():
        write_tensors(stored, {"maps": make_targets(photos, teacher)})
    targets = load_file(stored)["maps"]
    held_out = {}
    for source, few in folders.validation_photos().items():
        loaded = load_photos(few)
        held_out[source] = loaded, torch.cat([teacher(pixels) for pixels in batches(loaded)])

    torch.manual_seed(0)
    words = load_model(arguments.words)
    captions = captions_to_read(words, arguments.people, paths, targets)
    networks = networks_of(words.backend)
    student = Student(build_encoder(ENCODER, arguments.start_from), networks.decoder)
    student.encoder.freeze(FROZEN, batch_norm=False)
    student.eval()
    rows = torch.randperm(len(photos))[:SAMPLE]
    sample = list(batches(photos[rows]))
    student.begin(sample, [part.float() for part in targets[rows].split(50)])
    student.to(memory_format=torch.channels_last)

    def scores() -> dict[str, float]:
        return {
            f"{source} {group}": value
            for source, given in held_out.items()
            for group, value in explained(student, *given).items()
        }

    def save() -> None:
        decoder = student.folded(sample)
        trained = replace(networks, encoder=student.encoder, decoder=decoder)
        save_model(Captioner(trained, words.search), arguments.out / "model", torch.float32)

    context = list(student.encoder.context.parameters())
    others = [
        parameter
        for name, parameter in student.named_parameters()
        if parameter.requires_grad and not name.startswith("encoder.context.")
    ]
    groups = [{"params": others}, {"params": context, "lr": CONTEXT_LEARNING_RATE}]
    train_on_photos(
        student,
        DescribedPhotos(photos, targets, captions),
        arguments,
        scores,
        save,
        groups,
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        warmup_steps=len(paths) // BATCH_SIZE * arguments.epochs // 20,
    )


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
