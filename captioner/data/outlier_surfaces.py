"""Pictures that show nothing: noise of several kinds, plain colours, gradients."""

from __future__ import annotations

import numpy as np
from PIL import Image

Size = tuple[int, int]
"""Width and height in pixels."""


def pixel_noise(random: np.random.Generator, size: Size) -> Image.Image:
    """Every pixel of its own random colour."""
    return Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def grey_noise(random: np.random.Generator, size: Size) -> Image.Image:
    """A grey with normally distributed noise on it, or black and white grains (half of each)."""
    level, spread = random.uniform(60, 200), random.uniform(20, 90)
    grey = random.normal(level, spread, (size[1], size[0]))
    if random.random() < 0.5:
        grey = np.where(grey > level, 255.0, 0.0)
    return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")


def clouds(random: np.random.Generator, size: Size) -> Image.Image:
    """Blots of colour: noise of a few pixels, enlarged smoothly."""
    across = int(random.integers(2, 24))
    coarse = random.integers(0, 256, (across, across, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def stripes(random: np.random.Generator, size: Size) -> Image.Image:
    """Stripes of random colours, across or down, as of a broken screen."""
    count = int(random.integers(5, 120))
    line = random.integers(0, 256, (1, count, 3), dtype=np.uint8)
    if random.random() < 0.5:
        line = line.transpose(1, 0, 2)
    return Image.fromarray(np.ascontiguousarray(line)).resize(size, Image.Resampling.NEAREST)


def plain(random: np.random.Generator, size: Size) -> Image.Image:
    """One colour all over: black, white, a grey or another."""
    kind = int(random.integers(0, 4))
    grey = int(random.integers(0, 256))
    colour = tuple(int(part) for part in random.integers(0, 256, 3))
    return Image.new("RGB", size, ((0, 0, 0), (255, 255, 255), (grey,) * 3, colour)[kind])


def gradient(random: np.random.Generator, size: Size) -> Image.Image:
    """From one colour to another, in a straight line or from the middle outwards."""
    first, last = random.uniform(0, 255, (2, 1, 1, 3))
    across = np.linspace(-1, 1, size[0])[None, :]
    down = np.linspace(-1, 1, size[1])[:, None]
    if random.random() < 0.3:
        share = np.hypot(across, down) / np.sqrt(2)
    else:
        angle = random.uniform(0, 2 * np.pi)
        share = (np.cos(angle) * across + np.sin(angle) * down) / (2 * np.sqrt(2)) + 0.5
    colours = first + (last - first) * share[..., None]  # (height, width, 3)
    return Image.fromarray(colours.clip(0, 255).astype(np.uint8))
