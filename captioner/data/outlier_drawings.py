"""Drawings: scribbled lines, diagrams, geometric figures, plots of data."""

from __future__ import annotations

import itertools

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from captioner.data.outlier_screens import tint, words
from captioner.data.outlier_surfaces import Size


def scribbles(random: np.random.Generator, size: Size) -> Image.Image:
    """Pencil lines on paper that wander about and cross each other."""
    image = Image.new("RGB", size, tint(random, 225, 255))
    draw = ImageDraw.Draw(image)
    ink = tint(random, 0, 120)
    for _ in range(int(random.integers(2, 12))):
        count = int(random.integers(4, 40))
        steps = random.normal(0, 0.09, (count, 2)).cumsum(axis=0)
        places = (random.uniform(0.1, 0.9, 2) + steps) * size  # (count, 2)
        line = [(float(x), float(y)) for x, y in places]
        draw.line(line, fill=ink, width=int(random.integers(1, 4)), joint="curve")
    return image


def diagram(random: np.random.Generator, size: Size) -> Image.Image:
    """Labelled boxes and circles with arrows from one to the next."""
    width, height = size
    image = Image.new("RGB", size, (255, 255, 255))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(10)
    across, down = int(random.integers(2, 4)), int(random.integers(2, 4))
    middles = [
        ((column + 0.5) * width / across, (row + 0.5) * height / down)
        for row in range(down)
        for column in range(across)
        if random.random() < 0.8
    ]
    coloured = random.random() < 0.6
    for (x, y), (next_x, next_y) in itertools.pairwise(middles):
        draw.line((x, y, next_x, next_y), fill=(40, 40, 40), width=2)
        angle = np.arctan2(next_y - y, next_x - x)
        tip_x, tip_y = (x + 2 * next_x) / 3, (y + 2 * next_y) / 3
        wings = [
            (tip_x - 9 * np.cos(angle + turn), tip_y - 9 * np.sin(angle + turn))
            for turn in (-0.4, 0.4)
        ]
        draw.polygon([(tip_x, tip_y), *wings], fill=(40, 40, 40))
    half_width, half_height = 0.3 * width / across, 0.22 * height / down
    for x, y in middles:
        fill = tint(random, 170, 255) if coloured else (255, 255, 255)
        box = (x - half_width, y - half_height, x + half_width, y + half_height)
        outline = draw.ellipse if random.random() < 0.3 else draw.rectangle
        outline(box, fill=fill, outline=(30, 30, 30), width=2)
        draw.text((x, y), words(random, 1)[0], fill=(0, 0, 0), font=font, anchor="mm")
    return image


def figures(random: np.random.Generator, size: Size) -> Image.Image:
    """Discs, rectangles and polygons in flat colours, as of a logo or a poster."""
    image = Image.new("RGB", size, tint(random, 0, 255))
    draw = ImageDraw.Draw(image)
    for _ in range(int(random.integers(2, 9))):
        middle = random.uniform(0.1, 0.9, 2) * size
        radius = random.uniform(0.05, 0.35) * min(size)
        colour = tint(random, 0, 255)
        corners = int(random.integers(2, 8))
        x, y = (float(part) for part in middle)
        if corners == 2:
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
        else:
            turn = float(random.uniform(0, 360))
            draw.regular_polygon((x, y, float(radius)), corners, rotation=turn, fill=colour)
    return image


def plot(random: np.random.Generator, size: Size) -> Image.Image:
    """Axes with ticks and numbers; in them curves, bars or points."""
    width, height = size
    image = Image.new("RGB", size, (255, 255, 255))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(9)
    left, top, right, bottom = 0.14 * width, 0.1 * height, 0.95 * width, 0.87 * height
    for share in np.linspace(0, 1, 6).tolist():
        x, y = left + share * (right - left), bottom - share * (bottom - top)
        draw.line((x, bottom, x, bottom + 4), fill=(0, 0, 0))
        draw.line((left - 4, y, left, y), fill=(0, 0, 0))
        draw.text((x, bottom + 5), f"{10 * share:.0f}", fill=(0, 0, 0), font=font, anchor="ma")
        draw.text((left - 6, y), f"{share:.1f}", fill=(0, 0, 0), font=font, anchor="rm")
    kind = int(random.integers(3))
    for _ in range(1 if kind == 1 else int(random.integers(1, 5))):
        colour = tint(random, 0, 200)
        count = int(random.integers(5, 12)) if kind == 1 else 60
        xs = np.linspace(left, right, count + 2)[1:-1]
        values = np.abs(random.normal(0, 0.2, count).cumsum()) % 1.0
        ys = bottom - values * (bottom - top)
        points = [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
        if kind == 0:
            draw.line(points, fill=colour, width=2)
        for x, y in points:
            if kind == 1:
                half = 0.35 * (right - left) / count
                draw.rectangle((x - half, y, x + half, bottom), fill=colour)
            elif kind == 2:
                draw.ellipse((x - 2, y - 2, x + 2, y + 2), fill=colour)
    draw.rectangle((left, top, right, bottom), outline=(0, 0, 0))
    draw.text((width / 2, 2), " ".join(words(random, 3)), fill=(0, 0, 0), font=font, anchor="ma")
    return image
