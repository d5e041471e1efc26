"""Teach a VGG-shaped encoder to reproduce the feature maps of a teacher network.

The teacher (MobileNet v1, Howard et al. 2017, batch normalisation folded in) sees the same crop
as the student and gives two maps: block 11 (512 channels, stride 16) is what the student's own
last map is regressed on, block 12 (1,024 channels, stride 32) what a throw-away head on it is
regressed on. Each teacher channel is divided by its standard deviation, so all count alike and
the annotation vectors come out at a scale of about one.

Resumes from OUT by itself after a stop: an interruption costs at most one epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms.v2 import functional as transforms

from captioner.vision.vgg import VGGConfig, VGGEncoder

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STANDARD_DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


class Teacher(nn.Module):
    """MobileNet v1 up to block 12, from a safetensors file of folded weights."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        for name, tensor in load_file(file).items():
            self.register_buffer(name.replace(".", "_"), tensor.float())

    def _weights(self, name: str) -> tuple[Tensor, Tensor]:
        return getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, S, S) in [0, 1] -> block 11 (B, 512, S/16, S/16), 12 (B, 1024, S/32, S/32)."""
        hidden = functional.pad(pixels * 2 - 1, (0, 1, 0, 1))
        hidden = functional.relu6(functional.conv2d(hidden, *self._weights("conv1"), stride=2))
        block_11 = hidden
        for block in range(1, 13):
            weight, bias = self._weights(f"depthwise{block}")
            stride = 2 if block in (2, 4, 6, 12) else 1
            hidden = functional.pad(hidden, (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1))
            hidden = functional.conv2d(hidden, weight, bias, stride=stride, groups=len(weight))
            hidden = functional.conv2d(functional.relu6(hidden), *self._weights(f"pointwise{block}"))
            hidden = functional.relu6(hidden)
            if block == 11:
                block_11 = hidden
        return block_11, hidden


class Student(nn.Module):
    """The encoder and the head that only distillation needs."""

    def __init__(self, config: VGGConfig) -> None:
        super().__init__()
        self.encoder = VGGEncoder(config)
        self.head = nn.Conv2d(512, 1024, kernel_size=3, stride=2)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        block_11 = self.encoder.features((pixels - MEAN) / STANDARD_DEVIATION)
        return block_11, functional.relu(self.head(functional.pad(block_11, (0, 1, 0, 1))))


def load_photos(names: list[str], folder: Path, size: int = 224) -> Tensor:
    """All photos as one (N, 3, size, size) uint8 tensor."""
    photos = torch.empty(len(names), 3, size, size, dtype=torch.uint8)
    for index, name in enumerate(names):
        with Image.open(folder / name) as image:
            pixels = numpy.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC))
        photos[index] = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    return photos


def augment(photos: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Random crops, flips, brightness, contrast and saturation: (B, 3, size, size) in [0, 1]."""
    full = photos.shape[-1]
    uniform = torch.rand(len(photos), 7, generator=generator).tolist()
    crops = []
    for photo, (area, aspect, top, left, flip, _, _) in zip(photos, uniform, strict=True):
        side = full * (0.3 + 0.7 * area) ** 0.5
        ratio = (3 / 4) ** (aspect - 0.5)
        height, width = (min(full, round(side * r)) for r in (ratio, 1 / ratio))
        crop = photo[:, round(top * (full - height)) :, round(left * (full - width)) :]
        crop = crop[:, :height, :width]
        crop = transforms.resize(crop, [size, size], antialias=True)
        crops.append(crop.flip(-1) if flip < 0.5 else crop)
    pixels = torch.stack(crops).float() / 255
    factors = 1 + 0.3 * (2 * torch.rand(3, len(photos), 1, 1, 1, generator=generator) - 1)
    pixels = pixels * factors[0]
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    pixels = mean + (pixels - mean) * factors[1]
    grey = pixels.mean(dim=1, keepdim=True)
    return (grey + (pixels - grey) * factors[2]).clamp(0, 1)


def explained_variance(predicted: Tensor, target: Tensor) -> float:
    """1 - residual / variance about each channel's mean; maps (B, C, h, w)."""
    residual = (predicted - target).square().sum()
    return 1 - float(residual / (target - target.mean(dim=(0, 2, 3), keepdim=True)).square().sum())


@torch.no_grad()
def evaluate(student: Student, teacher: Teacher, scales: list[Tensor], photos: Tensor) -> list[float]:
    student.eval()
    outputs: list[list[Tensor]] = [[], [], [], []]
    for start in range(0, len(photos), 50):
        pixels = photos[start : start + 50].float() / 255
        for store, value in zip(outputs, (*student(pixels), *teacher(pixels)), strict=True):
            store.append(value)
    student.train()
    maps = [torch.cat(chunks) for chunks in outputs]
    return [explained_variance(maps[i], maps[2 + i] / scales[i]) for i in (0, 1)]


def save_atomically(tensors: dict[str, Tensor], path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    save_file(tensors, temporary)
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder of photos")
    parser.add_argument("--train", type=Path, required=True, help="file with one photo name a line")
    parser.add_argument("--validation", type=Path, required=True, help="likewise, for the figures")
    parser.add_argument("--teacher", type=Path, required=True, help="mobilenet_v1_1.0_224.safetensors")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoint and encoder")
    parser.add_argument("--name", default="vgg11_bn", help="which VGG (default: %(default)s)")
    parser.add_argument("--width", type=float, default=0.5, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=14, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--size", type=int, default=160, help="crop in pixels (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    names = arguments.train.read_text().split()
    photos = load_photos(names, arguments.photos)
    validation = load_photos(arguments.validation.read_text().split()[:300], arguments.photos)
    torch.manual_seed(arguments.seed)
    teacher = Teacher(arguments.teacher).to(memory_format=torch.channels_last)
    student = Student(VGGConfig(arguments.name, arguments.width))
    student.to(memory_format=torch.channels_last)
    with torch.no_grad():
        sample = teacher(photos[:300].float() / 255)
    scales = [m.std(dim=(0, 2, 3)).clamp(min=1e-2).view(1, -1, 1, 1) for m in sample]

    steps_an_epoch = len(photos) // arguments.batch_size
    optimizer = torch.optim.AdamW(student.parameters(), lr=arguments.learning_rate, weight_decay=1e-2, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, arguments.learning_rate, total_steps=arguments.epochs * steps_an_epoch, pct_start=0.1
    )
    checkpoint, state_file = arguments.out / "checkpoint.safetensors", arguments.out / "state.json"
    first_epoch = 0
    if checkpoint.exists() and state_file.exists():
        first_epoch = json.loads(state_file.read_text())["epochs_done"]
        tensors = load_file(checkpoint)
        student.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
        for index, parameter in enumerate(student.parameters()):
            optimizer.state[parameter] = {
                key: tensors[f"optimizer.{index}.{key}"] for key in ("step", "exp_avg", "exp_avg_sq")
            }
        for _ in range(first_epoch * steps_an_epoch):
            schedule.step()

    for epoch in range(first_epoch, arguments.epochs):
        generator = torch.Generator().manual_seed(arguments.seed * 1000 + epoch)
        order = torch.randperm(len(photos), generator=generator)
        started, total = time.monotonic(), 0.0
        for step in range(steps_an_epoch):
            rows = order[step * arguments.batch_size : (step + 1) * arguments.batch_size]
            pixels = augment(photos[rows], arguments.size, generator)
            pixels = pixels.to(memory_format=torch.channels_last)
            with torch.autocast("cpu", torch.bfloat16):
                with torch.no_grad():
                    targets = teacher(pixels)
                outputs = student(pixels)
            losses = [
                functional.mse_loss(o.float(), t.float() / s) for o, t, s in zip(outputs, targets, scales, strict=True)
            ]
            loss = losses[0] + losses[1]
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
            if step % 50 == 49:
                rate = (step + 1) * arguments.batch_size / (time.monotonic() - started)
                print(f"epoch {epoch + 1} step {step + 1}/{steps_an_epoch}: loss {total / (step + 1):.4f}, {rate:.1f} images/s", flush=True)
        scores = evaluate(student, teacher, scales, validation)
        print(f"epoch {epoch + 1}: explained variance, validation: block 11 {scores[0]:.4f}, block 12 {scores[1]:.4f}", flush=True)
        tensors = {f"model.{k}": v.contiguous() for k, v in student.state_dict().items()}
        for index, parameter in enumerate(student.parameters()):
            for key, value in optimizer.state[parameter].items():
                tensors[f"optimizer.{index}.{key}"] = value.contiguous()
        save_atomically(tensors, checkpoint)
        state_file.write_text(json.dumps({"epochs_done": epoch + 1, "explained_variance": scores}))
        save_atomically(
            {k: v.contiguous() for k, v in student.encoder.state_dict().items()},
            arguments.out / "encoder.safetensors",
        )


if __name__ == "__main__":
    main()
