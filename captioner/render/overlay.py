"""One attention map over its photo: bright where the model looked, dimmed elsewhere.

Maps of another shape raise `ValueError`: a mistake of the calling program. Also writes pictures.
"""

import math
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.errors import UserError
from captioner.files import JsonObject, atomic_path

Region: TypeAlias = tuple[float, float, float, float]
"""left, top, right, bottom in pixels from the top left corner of the photo, or fractions of them.

0 is the left edge of the first pixel, the photo's width the right edge of the last one.
"""

Places = npt.NDArray[np.bool_]
"""Which places of a map (rows, columns) are erased."""

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".pdf")
PAGE_SUFFIXES = (".html", ".htm")
"""File name endings of pictures and of web pages."""

WORD_PICTURE = re.compile(r"\d{2,}_[a-z0-9-]+\.jpg")
"""The file names of `save_word_images`."""

_LONGEST_NAME, _LONGEST_SIDE = 40, 1024  # Letters; pixels.


@dataclass(frozen=True)
class ErasedWord:
    """A content word of a caption, and what is left of it without what its map shows.

    position: of the word, from 0. places: those of the map that are erased.
    log_probability: of the word after those before it, in nats, on the whole photo. without: on
    the photo without these places. elsewhere: on the photo without as many others, the mean of
    several pictures. instead: the caption of the photo without these places. centre, least: as
    `without`, for as many places in the middle of the map, and for those attended to least; None
    unless measured.
    """

    position: int
    places: Places
    log_probability: float
    without: float
    elsewhere: float
    instead: str = ""
    centre: float | None = None
    least: float | None = None

    @property
    def probabilities(self) -> tuple[float, float, float]:
        """Of the word on the whole photo, without these places, and without others."""
        return math.exp(self.log_probability), math.exp(self.without), math.exp(self.elsewhere)

    def to_dict(self) -> JsonObject:
        """Its plain form for JSON and pages; places by their numbers, row by row."""
        whole, without, elsewhere = self.probabilities
        return {
            "position": self.position,
            "probability": whole,
            "without": without,
            "elsewhere": elsewhere,
            "instead": self.instead,
            "places": np.flatnonzero(self.places).tolist(),
        }


@dataclass(frozen=True)
class MappedCaption:
    """A caption as it is drawn: T words and their maps (T, rows, columns)."""

    words: Sequence[str]
    attention: Iterable[npt.ArrayLike]
    doubt: str = ""  # Shown below it, such as "not sure".
    language: str = "en"  # A tag: which words are function words; of the legend.
    confidence: float | None = None  # The caption's, shown on pages.
    word_confidence: Sequence[float | None] | None = None  # Shown with the words, but for None.
    erased: Sequence[ErasedWord] = ()  # Shown in place of their confidences.


@dataclass(frozen=True)
class OverlayStyle:
    """The numbers of the overlay; the script of the web page gets the same ones."""

    flat_peak: float = 3.0  # Lowest peak to scale by, in units of 1 / L: flat maps look flat.
    readable_grey: float = 0.4  # Mean grey to which darker photos and lit places are brightened.
    steepest: float = 6.0  # Largest slope of that brightening, in black.
    dimmed_light: float = 0.12  # Brightness without attention, and saturation, as fractions.
    dimmed_colour: float = 0.35
    # Red, green, blue in [0, 1], blended in where the attention is: dark photos show no dimming.
    tint: tuple[float, float, float] = (1.0, 0.72, 0.2)
    tint_share: float = 0.25
    contour_level: float = 0.5  # Fraction of the peak at which the contour line runs.
    hatch_light: float = 0.1  # Brightness of hatch lines over what the encoder did not see.


STYLE = OverlayStyle()

_SUM_TOLERANCE = 0.01  # A map sums to 1; weights of half precision to nearly 1.
_GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # Weights of red, green and blue.


def overlay(
    photo: Image.Image, attention_map: npt.ArrayLike, region: Region, strength: float = 0.8
) -> Image.Image:
    """Draw one attention map over its photo; returns an RGB image of the photo's size.

    attention_map: (rows, columns). region: what it covers; the rest is dimmed and hatched.
    strength: 0 leaves the photo unchanged, 1 leaves it almost dark where the model did not look.

    A dark photo is brightened, and what is dark under the light as well. The map is scaled by its
    own peak, so that both wide and narrow maps are readable. A contour line is at half of the peak.
    """
    weights = check_map(attention_map)
    pixel_values: Floats = np.array(photo.convert("RGB"), np.float32) / np.float32(255)
    light = brightness(upsample(weights, photo.size, region), weights.size)  # (height, width)

    grey = pixel_values @ _GREY
    everywhere = _brightened(pixel_values, strength * _lift(float(grey.mean())))
    under_light = float((light * grey).sum() / max(float(light.sum()), 1e-6))
    lit = _brightened(pixel_values, strength * _lift(under_light))
    grey = everywhere @ _GREY
    darkest = grey[..., None] + STYLE.dimmed_colour * (everywhere - grey[..., None])
    dimmed = everywhere + strength * (STYLE.dimmed_light * darkest - everywhere)
    drawn = dimmed + light[..., None] * (lit - dimmed)
    share = strength * STYLE.tint_share * light[..., None]
    drawn += share * (np.array(STYLE.tint, dtype=np.float32) - drawn)

    covered = _pixels(region)
    hatch = 1 - strength * (1 - STYLE.hatch_light) * _hatching(light.shape)
    hatch[covered] = 1
    drawn *= hatch[..., None]
    line = max(1.0, max(photo.size) / 450)
    for width, opacity, shade in ((3 * line, 0.35, 0.0), (line, 0.85, 1.0)):
        around = _contour(light[covered], width)
        drawn[covered] += (strength * opacity * around)[..., None] * (shade - drawn[covered])
    return Image.fromarray((drawn.clip(0, 1) * 255 + 0.5).astype(np.uint8))


def brightness(upsampled: Doubles, cells: int) -> Floats:
    """Scale a map (height, width), upsampled from `cells`, to [0, 1] for `overlay`."""
    scale = max(float(upsampled.max()), STYLE.flat_peak / cells)
    return (upsampled / scale).astype(np.float32)


def _lift(grey: float) -> float:
    """The k of `_brightened` for a mean grey: 0 from `OverlayStyle.readable_grey` on."""
    k = (STYLE.readable_grey - grey) / max(grey * (1 - STYLE.readable_grey), 1e-6)
    return min(max(k, 0.0), STYLE.steepest - 1)


def _brightened(values: Floats, k: float) -> Floats:
    """Values in [0, 1] on a curve through 0 and 1 with the slope 1 + k in 0."""
    return values * (1 + k) / (1 + k * values)


def _hatching(shape: tuple[int, ...]) -> Floats:
    """Soft diagonal stripes (height, width) in [0, 1]."""
    period = max(6.0, max(shape) / 50)
    down, across = np.indices(shape, dtype=np.float32, sparse=True)
    phase = np.abs((across + down) / period % 1 - 0.5)  # 0 on the line, 0.5 between two lines
    return np.clip(1.25 - phase * period / 1.5, 0, 1).astype(np.float32)  # type: ignore[no-any-return]


def _contour(light: Floats, width: float) -> Floats:
    """Opacity (height, width) of a smooth contour line of `width` pixels.

    A pixel's distance from it is about its brightness less the contour level, by the slope.
    """
    if min(light.shape) < 2:
        return np.zeros_like(light)
    down, across = np.gradient(light)
    distance = np.abs(light - STYLE.contour_level) / np.maximum(np.hypot(down, across), 1e-6)
    return np.clip(width / 2 + 0.5 - distance, 0, 1)  # type: ignore[no-any-return]


def upsample(attention_map: npt.ArrayLike, photo_size: tuple[int, int], region: Region) -> Doubles:
    """Upsample a map (rows, columns) to its region of a photo: (height, width).

    A pixel is a mean of the cells around it, weighted by a cubic B-spline, so that values keep
    their unit: a uniform map gives 1 / L everywhere. The spline is close to a Gaussian with a
    standard deviation of 0.58 cells; the figures of Xu et al. 2015 have one of 0.83. Values are
    constant from the centres of the outermost cells to the edge.

    photo_size: width and height in pixels. region: a pixel whose centre is outside is 0.
    """
    left, top, right, bottom = region
    covered = _pixels(region)
    weights = np.asarray(attention_map, dtype=np.float64)
    rows, columns = weights.shape
    # Centres of the pixels in the map, in cells from its top left corner.
    y, x = (np.arange(side.start, side.stop) + 0.5 for side in covered)
    down, across = (y - top) / (bottom - top) * rows, (x - left) / (right - left) * columns
    upsampled = np.zeros((photo_size[1], photo_size[0]))
    by_row = _spline_weights(rows, down) @ weights  # (height, columns)
    # Not `@`: the threads of NumPy's BLAS wait for each other where drawings run in threads.
    upsampled[covered] = np.einsum("yc,xc->yx", by_row, _spline_weights(columns, across))
    return upsampled  # (height, width)


def _spline_weights(cells: int, positions: Doubles) -> Doubles:
    """Weight of each cell at each position: (positions, cells); rows sum to 1.

    positions: in cells from the outer edge of the first cell; the centre of cell i is at i + 0.5.
    """
    from_centre = np.clip(positions - 0.5, 0, cells - 1)  # constant beyond the outermost centres
    distance = np.abs(from_centre[:, np.newaxis] - np.arange(-1, cells + 1))
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    spline = np.where(distance < 1, near, far)  # cubic B-spline
    spline[:, 1] += spline[:, 0]  # The outermost cells are repeated beyond the edge.
    spline[:, -2] += spline[:, -1]
    return spline[:, 1:-1]


def check_map(attention_map: npt.ArrayLike) -> Doubles:
    """A map (rows, columns) as float64, checked to be weights that sum to 1."""
    weights = np.asarray(attention_map, dtype=np.float64)
    if weights.ndim != 2 or not (weights >= 0).all() or abs(weights.sum() - 1) > _SUM_TOLERANCE:
        shape = weights.shape
        raise ValueError(f"a map {shape} is not (rows, columns) of weights >= 0 that sum to 1")
    return weights


def _pixels(region: Region) -> tuple[slice, slice]:
    """Rows and columns of the pixels centred in a region; maybe none, of a very long photo."""
    left, top, right, bottom = (math.ceil(edge - 0.5) for edge in region)
    return slice(top, bottom), slice(left, right)


def fit(
    photo: Image.Image, region: Region, longest_side: int, enlarge: bool = True
) -> tuple[Image.Image, Region]:
    """Resize a photo, and its region, to `longest_side` pixels on the longer side; as RGB.

    The aspect ratio is kept to the nearest pixel. enlarge: False keeps a smaller photo's size.
    """
    rgb = photo if photo.mode == "RGB" else photo.convert("RGB")
    scale = longest_side / (max(photo.size) if enlarge else max(*photo.size, longest_side))
    width, height = (max(1, round(side * scale)) for side in photo.size)
    if (width, height) != photo.size:
        rgb = rgb.resize((width, height), Image.Resampling.LANCZOS)
    return rgb, scale_region(region, photo.size, rgb.size)


def scale_region(region: Region, before: tuple[int, int], after: tuple[int, int]) -> Region:
    """The region of a photo of size `before` (width, height) in the photo resized to `after`."""
    left, top, right, bottom = region
    across, down = after[0] / before[0], after[1] / before[1]
    return left * across, top * down, right * across, bottom * down


def save_picture(path: str | os.PathLike[str], picture: Image.Image) -> None:
    """Write a picture in the format of the file name's ending."""
    check_suffix(path, PICTURE_SUFFIXES)
    with atomic_path(path) as temporary:
        # This level of PNG takes a third of the default's time, for 2 % more bytes.
        picture.save(temporary, quality=90, compress_level=4)


def check_suffix(path: str | os.PathLike[str], suffixes: Sequence[str]) -> None:
    """Raise `UserError` unless a file name ends in one of the suffixes."""
    if Path(path).suffix.lower() not in suffixes:
        raise UserError(f"cannot write {path}: its name must end in {' or '.join(suffixes)}")


def save_word_images(
    folder: str | os.PathLike[str],
    photo: Image.Image,
    region: Region,
    caption: MappedCaption,
    strength: float = 0.8,
) -> list[Path]:
    """Write the overlay of each word as a JPEG in `folder`; return the paths in order.

    File names are the word's number and `safe_name`: `01_a.jpg`, `02_dog.jpg`. Other files stay.
    """
    drawn_photo, drawn_region = fit(photo, region, _LONGEST_SIDE, enlarge=False)
    numbered = enumerate(caption.words, start=1)
    paths = [Path(folder, f"{number:02}_{safe_name(word)}.jpg") for number, word in numbered]
    for path, weights in zip(paths, caption.attention, strict=True):
        save_picture(path, overlay(drawn_photo, weights, drawn_region, strength))
    return paths


def safe_name(word: str) -> str:
    """A word in lower-case ASCII letters, digits and hyphens; "word" if none remain."""
    plain = unicodedata.normalize("NFKD", word).encode("ascii", errors="ignore").decode("ascii")
    name = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return name or "word"
