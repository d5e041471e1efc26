"""Captions as one self-contained web page, in which pointing at a word shows its map."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.files import write_text
from captioner.render.attention_checks import check_attention, check_strength
from captioner.render.overlay import LOOK
from captioner.render.page_script import SCRIPT
from captioner.render.page_style import STYLE
from captioner.render.region import Region, fit
from captioner.render.typography import printable

UNIT = 1e-5
"""What 1 stands for in the maps of the page, which are whole numbers to keep it small."""

_LONGEST_SIDE = 1000
_JPEG_QUALITY = 85


@dataclass(frozen=True)
class PageCaption:
    """One caption of a photo.

    words: the T words.
    attention: (T, rows, columns), the map of each word.
    log_probability: of the whole caption, in nats; written beside it.
    score: what captions of a photo are ranked by; written beside each where there are several.
    """

    words: Sequence[str]
    attention: npt.ArrayLike
    log_probability: float | None = None
    score: float | None = None


@dataclass(frozen=True)
class PagePhoto:
    """A photo as small as a page will have it. Made by `PagePhoto.of`.

    jpeg: the photo, encoded; of `size`, width and height in pixels.
    region: left, top, right, bottom of what the maps cover, as shares of the photo's sides.
    """

    jpeg: bytes
    size: tuple[int, int]
    region: Region

    @classmethod
    def of(cls, photo: Image.Image, region: Region) -> PagePhoto:
        """A photo with at most 1000 pixels a side, and the part the maps cover, in its pixels.

        Raises `ValueError` as `check_region` does.
        """
        fitted, (left, top, right, bottom) = fit(photo, region, _LONGEST_SIDE, enlarge=False)
        width, height = fitted.size
        buffer = io.BytesIO()
        fitted.save(buffer, format="JPEG", quality=_JPEG_QUALITY)
        shares = (left / width, top / height, right / width, bottom / height)
        return cls(buffer.getvalue(), fitted.size, shares)

    @property
    def address(self) -> str:
        """The photo as an address that holds it all."""
        return "data:image/jpeg;base64," + base64.b64encode(self.jpeg).decode("ascii")


@dataclass(frozen=True)
class PageItem:
    """One photo of the page, as small as the page will have it. Made by `PageItem.of`.

    photo: the photo itself.
    map_shape: rows and columns of the maps.
    captions: for each caption its words, and the numbers that are written beside it.
    maps: for each caption its maps (T, rows * columns), int32, in units of `UNIT`.
    name: a line under the photo, such as the name of its file.
    """

    photo: PagePhoto
    map_shape: tuple[int, int]
    captions: Sequence[tuple[tuple[str, ...], str]]
    maps: Sequence[npt.NDArray[np.int32]]
    name: str = ""

    @classmethod
    def of(
        cls, photo: Image.Image, region: Region, captions: Sequence[PageCaption], name: str = ""
    ) -> PageItem:
        """A photo made ready for the page; nothing of it is kept but its JPEG.

        region: the part of the photo the maps cover, in its pixels.
        captions: the caption, and after it any alternatives; all their maps have one shape.

        Raises `ValueError` without captions, for maps of different shapes, and as
        `check_attention` and `check_region` do.
        """
        if len(captions) == 0:
            raise ValueError("a photo of a page has no caption")
        maps = [check_attention(caption.words, caption.attention) for caption in captions]
        shapes = {(weights.shape[1], weights.shape[2]) for weights in maps}
        if len(shapes) > 1:
            raise ValueError(f"a photo of a page has maps of different shapes: {shapes}")
        return cls(
            photo=PagePhoto.of(photo, region),
            map_shape=shapes.pop(),
            captions=[(tuple(each.words), _beside(each, len(captions) > 1)) for each in captions],
            maps=[
                np.rint(weights.reshape(len(weights), -1) / UNIT).astype(np.int32)
                for weights in maps
            ],
            name=name,
        )


def html_page(
    items: Sequence[PageItem], title: str = "Where the model looked", strength: float = 0.8
) -> str:
    """One HTML page for one or several captioned photos, as text to be stored in UTF-8.

    Everything is in the page: photos as JPEG of at most 1000 pixels a side, maps as numbers,
    style and script. It loads nothing, and forbids itself to. Pointing at a word, moving to it
    with the keyboard or tapping it shows its map over the photo, drawn as `overlay` draws it.

    strength: of the overlay at first; the page has a slider for it.

    Raises `ValueError` for no items and as `check_strength` does.
    """
    if len(items) == 0:
        raise ValueError("there must be at least one photo on a page")
    percent = round(100 * check_strength(strength))
    articles = []
    numbers: dict[str, Any] = {"unit": UNIT, "look": asdict(LOOK), "items": []}
    for position, item in enumerate(items):
        numbers["items"].append(_numbers(item))
        articles.append(_article(item, position))
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{_digest(SCRIPT)}'"
    )
    heading = html.escape(printable(title))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{heading}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{heading}</h1>
<p>Point at a word, tap it, or walk with <kbd>←</kbd> <kbd>→</kbd>: the light falls where the model
looked when it wrote that word. A click keeps it, <kbd>Esc</kbd> lets it go. Hatched: not seen by
the model.</p>
<div class="strength"><label for="strength">Strength</label>
<input id="strength" type="range" min="0" max="100" value="{percent}" autocomplete="off">
<output id="strength-shown" for="strength">{percent} %</output></div>
<noscript><p>Without its script this page shows the photos and captions, but no maps.</p></noscript>
</header>
<main>
{"".join(articles)}</main>
<script id="data" type="application/json">{_json(numbers)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def save_html(
    path: str | os.PathLike[str],
    items: Sequence[PageItem],
    title: str = "Where the model looked",
    strength: float = 0.8,
) -> None:
    """Write `html_page` to a file.

    Raises `ValueError` as `html_page` does and `UserError` when the file cannot be written.
    """
    write_text(path, html_page(items, title, strength))


def _numbers(item: PageItem) -> dict[str, Any]:
    """What the script needs of an item: edges as shares of the photo, maps row by row."""
    rows, columns = item.map_shape
    return {
        "region": list(item.photo.region),
        "rows": rows,
        "columns": columns,
        "captions": [weights.tolist() for weights in item.maps],
    }


def _article(item: PageItem, position: int) -> str:
    """The HTML of one item; all text from outside is escaped."""
    width, height = item.photo.size
    alternative = html.escape(" ".join(printable(word) for word in item.captions[0][0]))
    name = html.escape(printable(item.name))
    captions = "".join(_caption(words, numbers) for words, numbers in item.captions)
    return f"""<article class="item" id="item-{position}">
<figure>
<div class="stage" style="--ratio:{width / height:.4f}">
<img src="{item.photo.address}" width="{width}" height="{height}" alt="{alternative}">
<canvas hidden></canvas>
</div>
<figcaption>{name}</figcaption>
</figure>
<ol class="captions">
{captions}</ol>
</article>
"""


def _beside(caption: PageCaption, ranked: bool) -> str:
    parts = []
    if ranked and caption.score is not None:
        parts.append(f"score {caption.score:.2f}")
    if caption.log_probability is not None:
        parts.append(f"log-probability {caption.log_probability:.2f}")
    return ", ".join(parts)


def _caption(words: Sequence[str], numbers: str) -> str:
    buttons = "\n".join(
        f'<button class="word" type="button" aria-pressed="false">'
        f"{html.escape(printable(word) or '?')}</button>"
        for word in words
    )
    score = f'<span class="score">{numbers}</span>' if numbers else ""
    return f"""<li class="caption">
<div class="words" dir="auto">
{buttons}
</div>
<div class="below"><button class="play" type="button">Play</button>{score}</div>
</li>
"""


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
