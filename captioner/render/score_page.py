"""Captions with their references and scores as one self-contained web page: the best, the worst."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from captioner.files import write_text
from captioner.render.page_style import STYLE
from captioner.render.region import fit
from captioner.render.typography import printable

_LONGEST_SIDE = 480
_JPEG_QUALITY = 80

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_STYLE = """
nav { margin-top: .75rem; display: flex; gap: 1.25rem; }
a { color: var(--focus); }
h2 { font-size: 1.2rem; margin: 1.5rem 0 .75rem; }
.cards {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr));
  gap: 1.25rem; list-style: none; margin: 0; padding: 0;
}
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: 1rem;
  overflow-wrap: anywhere; min-width: 0;
}
.card img, .absent {
  display: block; width: 100%; aspect-ratio: 4 / 3; object-fit: contain; border-radius: .4rem;
}
.absent {
  display: flex; align-items: center; justify-content: center; text-align: center;
  color: var(--pale); border: 1px dashed var(--line); padding: 1rem; font-size: .9rem;
}
.said { font-size: 1.15rem; line-height: 1.35; margin: .6rem 0 .4rem; }
.score-by {
  display: inline-block; background: var(--mark); color: var(--mark-ink); border-radius: .35rem;
  padding: 0 .45rem; font-variant-numeric: tabular-nums;
}
.scores {
  color: var(--pale); font-size: .875rem; margin: .4rem 0 .6rem;
  display: flex; flex-wrap: wrap; gap: 0 .9rem; font-variant-numeric: tabular-nums;
}
.references { margin: 0; padding-left: 1.2rem; font-size: .95rem; }
.references li { margin: .15rem 0; }
"""


@dataclass(frozen=True)
class ScoredCaption:
    """One caption of the page. Photos become small JPEGs at once: see `small_jpeg`.

    name: a line under the photo, such as the name of its file.
    caption, references: as written; the caption may be empty.
    scores: by the names of the metrics.
    jpeg: the photo, encoded; None where there is none.
    without_photo: a sentence that stands in the photo's place; empty: the place is left out.
    """

    name: str
    caption: str
    references: Sequence[str]
    scores: Mapping[str, float]
    jpeg: bytes | None = None
    without_photo: str = ""


def small_jpeg(photo: Image.Image) -> bytes:
    """A photo as JPEG, of at most 480 pixels a side."""
    whole = (0.0, 0.0, float(photo.width), float(photo.height))
    fitted, _ = fit(photo, whole, _LONGEST_SIDE, enlarge=False)
    buffer = io.BytesIO()
    fitted.save(buffer, format="JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()


def score_page(
    best: Sequence[ScoredCaption],
    worst: Sequence[ScoredCaption],
    by: str,
    total: int,
    title: str = "The best and the worst captions",
) -> str:
    """One HTML page, as text to be stored in UTF-8.

    best, worst: in the order in which they are shown; either may be empty, but not both.
    by: the metric that ranked them, which is among the `scores` of each.
    total: how many captions they were chosen from.

    Everything is in the page, which has no script; it loads nothing, and forbids itself to.
    Raises `ValueError` for no captions at all.
    """
    if not best and not worst:
        raise ValueError("there must be at least one caption on a page")
    parts = [(key, items) for key, items in (("best", best), ("worst", worst)) if items]
    counts = " and ".join(f"the {len(items):,} {key}" for key, items in parts)
    links = "".join(f'<a href="#{key}">The {key}</a>' for key, _ in parts)
    sections = "".join(_section(key, items, by) for key, items in parts)
    heading = html.escape(printable(title))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{heading}</title>
<style>{STYLE}{_STYLE}</style>
</head>
<body>
<header>
<h1>{heading}</h1>
<p>Of {total:,} captions, {counts}, by {html.escape(by)} of each image on its own. Below each
caption are its scores, and what people wrote about the photo.</p>
<nav>{links}</nav>
</header>
<main>
{sections}</main>
</body>
</html>
"""


def save_score_page(
    path: str | os.PathLike[str],
    best: Sequence[ScoredCaption],
    worst: Sequence[ScoredCaption],
    by: str,
    total: int,
    title: str = "The best and the worst captions",
) -> None:
    """Write `score_page` to a file.

    Raises `ValueError` as `score_page` does and `UserError` when the file cannot be written.
    """
    write_text(path, score_page(best, worst, by, total, title))


def _section(key: str, items: Sequence[ScoredCaption], by: str) -> str:
    cards = "".join(_card(item, by) for item in items)
    return f"""<section id="{key}" aria-labelledby="{key}-title">
<h2 id="{key}-title">The {key}</h2>
<ol class="cards">
{cards}</ol>
</section>
"""


def _card(item: ScoredCaption, by: str) -> str:
    """The HTML of one caption; all text from outside is escaped."""
    caption = html.escape(printable(item.caption)) or "<em>an empty caption</em>"
    others = "".join(
        f"<span>{html.escape(name)} {score:.3f}</span>"
        for name, score in item.scores.items()
        if name != by
    )
    references = "".join(
        f'<li dir="auto">{html.escape(printable(reference))}</li>' for reference in item.references
    )
    return f"""<li class="card">
<figure>
{_photo(item)}<figcaption>{html.escape(printable(item.name))}</figcaption>
</figure>
<p class="said" dir="auto">{caption}</p>
<div class="scores"><span class="score-by">{html.escape(by)} {item.scores[by]:.3f}</span>{others}
</div>
<ul class="references">{references}</ul>
</li>
"""


def _photo(item: ScoredCaption) -> str:
    if item.jpeg is not None:
        data = base64.b64encode(item.jpeg).decode("ascii")
        name = html.escape(printable(item.name))
        return f'<img src="data:image/jpeg;base64,{data}" alt="{name}">\n'
    if item.without_photo:
        return f'<div class="absent">{html.escape(printable(item.without_photo))}</div>\n'
    return ""
