"""The best and the worst captions, with references and scores, as one standalone web page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from captioner.render.web_page import escaped, jpeg_address, web_page

_TITLE = "The best and the worst captions"
_LONGEST_SIDE = 480


@dataclass(frozen=True)
class ScoredCaption:
    """One caption of the page.

    name: the line under the photo, such as the name of its file.
    caption: the generated caption; may be empty. references: the captions people wrote.
    scores: by the names of the metrics.
    jpeg: the photo from `small_jpeg`, a `data:` address; None if there is none.
    without_photo: a sentence in place of a missing photo; "" leaves the place out.
    """

    name: str
    caption: str
    references: Sequence[str]
    scores: Mapping[str, float]
    jpeg: str | None = None
    without_photo: str = ""


def small_jpeg(photo: Image.Image) -> str:
    """The photo with at most 480 pixels a side, as a `data:` address."""
    small = photo.convert("RGB")
    small.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    return jpeg_address(small)


def score_page(
    best: Sequence[ScoredCaption], worst: Sequence[ScoredCaption], by: str, total: int
) -> str:
    """Return one HTML page without scripts, to be stored as UTF-8.

    best, worst: in the order shown; they may be empty.
    by: the metric that ranks the captions, a key of every `scores`.
    total: number of captions the best and worst were chosen from.
    """
    parts = [(key, items) for key, items in (("best", best), ("worst", worst)) if items]
    counts = " and ".join(f"the {len(items):,} {key}" for key, items in parts)
    links = "".join(f'<a href="#{key}">The {key}</a>' for key, _ in parts)
    sections = "".join(_section(key, items, by) for key, items in parts)
    body = f"""<header>
<h1>{_TITLE}</h1>
<p>Of {total:,} captions, {counts}, by {escaped(by)} of each image on its own. Below each caption
are its scores and the references.</p>
<nav>{links}</nav>
</header>
<main>
{sections}</main>
"""
    return web_page(_TITLE, ("viewer.css", "page.css", "score_page.css"), body)


def _section(key: str, items: Sequence[ScoredCaption], by: str) -> str:
    cards = "".join(_card(item, by) for item in items)
    return f"""<section id="{key}" aria-labelledby="{key}-title">
<h2 id="{key}-title">The {key}</h2>
<ol class="cards">
{cards}</ol>
</section>
"""


def _card(item: ScoredCaption, by: str) -> str:
    """HTML of one caption."""
    caption = escaped(item.caption) or "<em>an empty caption</em>"
    others = "".join(
        f"<span>{escaped(name)} {score:.3f}</span>"
        for name, score in item.scores.items()
        if name != by
    )
    references = "".join(
        f'<li dir="auto">{escaped(reference)}</li>' for reference in item.references
    )
    return f"""<li class="card">
<figure>
{_photo(item)}<figcaption>{escaped(item.name)}</figcaption>
</figure>
<p class="generated" dir="auto">{caption}</p>
<div class="scores"><span class="ranking-score">{escaped(by)} {item.scores[by]:.3f}</span>{others}
</div>
<ul class="references">{references}</ul>
</li>
"""


def _photo(item: ScoredCaption) -> str:
    if item.jpeg is not None:
        return f'<img src="{item.jpeg}" alt="{escaped(item.name)}">\n'
    if item.without_photo:
        return f'<div class="absent">{escaped(item.without_photo)}</div>\n'
    return ""
