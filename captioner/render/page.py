"""Captions as one standalone web page, the parts of all pages, and the words on drawings.

Pointing at a word shows its attention map. Pages have nothing to load.
"""

import base64
import hashlib
import html
import io
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import IO

import numpy as np
from PIL import Image

from captioner.files import JsonObject, StrPath, atomic_path, refuse_os_errors, write_text
from captioner.render.overlay import (
    PAGE_SUFFIXES,
    STYLE,
    MappedCaption,
    Region,
    check_map,
    check_suffix,
    fit,
    scale_region,
)
from captioner.render.typography import printable
from captioner.text.languages import ENGLISH, word_list

UNIT = 1e-5  # Value of 1 in the maps of the page: whole numbers keep it small.
_LONGEST_SIDE = 1000
DOUBTFUL = 0.5  # Words of less confidence are paler.


@dataclass(frozen=True)
class PageItem:
    """One photo of the page with its captions. Made by `PageItem.of`.

    viewer_data: JSON of numbers that `captionViewer` reads: the region of the maps, as fractions of
        the photo's sides, and for each caption its maps (T, rows * columns), in units of `UNIT`.
    """

    address: str  # The photo as a `data:` address.
    size: tuple[int, int]  # Width and height in pixels.
    captions: Sequence[MappedCaption]  # Without their maps.
    viewer_data: str
    name: str = ""  # The line under the photo.
    path: str = ""  # From the page's folder, for the table of edited captions; or else `name`.
    folder: str = ""  # The heading above its photos.
    photo_digest: str = ""  # For the table, too.
    text: str = ""  # The sentence of the first caption; by default its words.

    @classmethod
    def of(
        cls, photo: Image.Image, region: Region, captions: Sequence[MappedCaption], name: str = ""
    ) -> "PageItem":
        """Prepare a photo for the page; only its JPEG is kept.

        region: the part of the photo the maps cover, in pixels.
        captions: the caption, then any alternatives; all maps have the same shape.
        """
        fitted, fitted_region = fit(photo, region, _LONGEST_SIDE, enlarge=False)
        maps = []
        for caption in captions:
            pairs = zip(caption.words, caption.attention, strict=True)
            maps.append(np.array([check_map(weights) for _, weights in pairs]))
        flat = [np.rint(each.reshape(len(each), -1) / UNIT).astype(int).tolist() for each in maps]
        fractions = scale_region(fitted_region, fitted.size, (1, 1))
        _, rows, columns = maps[0].shape
        data: JsonObject = {"region": fractions, "rows": rows, "columns": columns, "captions": flat}
        if any(caption.erased for caption in captions):
            data["erased"] = [[word.to_dict() for word in each.erased] for each in captions]
        without_maps = [replace(caption, attention=(), erased=()) for caption in captions]
        encoded = json.dumps(data, separators=(",", ":"))
        return cls(jpeg_address(fitted), fitted.size, without_maps, encoded, name)


def html_page(items: Sequence[PageItem], strength: float = 0.8, title: str = "") -> str:
    """One standalone HTML page for captioned photos, as JPEGs of at most 1000 pixels a side.

    Pointing at a word, focusing it with the keyboard or tapping it shows its map over the photo,
    drawn as by `overlay`. The page's own words are in the language of the first caption, or that of
    the browser if it is English. Captions can be edited and downloaded as a table that training
    reads. strength: of the slider at first. title: heading of the page.
    """
    head, foot = _frame(items[0].captions[0].language, strength, title)
    return "".join([head, *map(_article, items), foot])


def save_html(path: StrPath, items: Sequence[PageItem], strength: float, title: str = "") -> None:
    """Write `html_page` to a file."""
    check_suffix(path, PAGE_SUFFIXES)
    write_text(path, html_page(items, strength, title))


class PageWriter:
    """Writes the page of `html_page` photo by photo, of which it holds none in memory.

    is_plain: an album to look at, without doubt, percentages, buttons and edits.
    """

    def __init__(
        self, path: StrPath, strength: float = 0.8, title: str = "", is_plain: bool = False
    ) -> None:
        check_suffix(path, PAGE_SUFFIXES)
        self._path = Path(path)
        self._is_plain = is_plain
        self._frame = partial(_frame, strength=strength, title=title, is_plain=is_plain)
        self._language = ENGLISH
        self._articles: IO[bytes] | None = None  # A file without a name.
        self._places: list[tuple[str, int, int]] = []  # In it, of articles; with their folders.

    def add(self, item: PageItem) -> None:
        """Write a photo's article to a temporary file in the page's folder."""
        with refuse_os_errors(f"cannot write {self._path}"):
            if self._articles is None:
                self._language = item.captions[0].language
                folder = Path(os.path.realpath(self._path)).parent
                folder.mkdir(parents=True, exist_ok=True)
                self._articles = TemporaryFile(dir=folder)  # noqa: SIM115
            start = self._articles.tell()
            self._articles.write(_bytes(_article(item, self._is_plain)))
            self._places.append((item.folder, start, self._articles.tell()))

    def close(self) -> None:
        """Put the page together, in the order of folders; without photos, an earlier one stays."""
        if self._articles is None:
            return
        head, foot = self._frame(self._language)
        shown = ""
        with self._articles, atomic_path(self._path) as temporary, temporary.open("wb") as page:
            page.write(_bytes(head))
            for folder, start, end in sorted(self._places):
                if folder != shown:
                    page.write(_bytes(f'<h2 translate="no">{escaped(folder)}</h2>\n'))
                    shown = folder
                self._articles.seek(start)
                page.write(self._articles.read(end - start))
            page.write(_bytes(foot))


def _frame(language: str, strength: float, title: str, is_plain: bool = False) -> tuple[str, str]:
    """What stands before the articles of a page, and after them."""
    title = title or ("Photos" if is_plain else "Where the model looked")
    template = _template("gallery.html", is_plain)
    body = template.format(title=escaped(title), percent=round(100 * strength), unit=UNIT)
    script = f"{viewer_script()}\n{static_file('overlay_page.js')}"
    page = web_page(title, ("pages.css",), body, script, phrases(language).language)
    head, _, foot = page.partition("<!--articles-->")
    return head, foot


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _article(item: PageItem, is_plain: bool = False) -> str:
    best, *others = item.captions
    text = item.text or " ".join(best.words)
    captions = [_caption(best, is_plain, text), *(_caption(each, is_plain) for each in others)]
    return _template("photo.html", is_plain).format(
        item=item,
        ratio=item.size[0] / item.size[1],
        alternative=escaped(text),
        image=escaped(item.path or item.name),
        name=escaped(item.name),
        captions="".join(captions),
    )


def _caption(caption: MappedCaption, is_plain: bool, text: str = "") -> str:
    """A caption of a photo. text: the sentence, where its words may be another one's."""
    spans = []
    for position, word in enumerate(caption.words):
        kind, title = "word", ""
        score = caption.word_confidence[position] if caption.word_confidence else None
        if score is not None and not is_plain:
            kind = "word doubtful" if score < DOUBTFUL else "word"
            title = f' title="{round(100 * score)} %"'
        spans.append(f'<span class="{kind}"{title}>{escaped(word) or "?"}</span>')
    note = f'<span class="doubt">{escaped(caption.doubt)}</span>' if caption.doubt else ""
    if caption.confidence is not None:
        kind = 'class="confidence" title="Share of its content words that people would use"'
        note = f"<span {kind}>{round(100 * caption.confidence)} %</span>{note}"
    sentence = f' data-text="{escaped(text)}"' if text not in ("", " ".join(caption.words)) else ""
    words, language = " ".join(spans), escaped(caption.language)
    template = _template("caption.html", is_plain)
    return template.format(language=language, sentence=sentence, words=words, note=note)


@cache
def _template(name: str, is_plain: bool) -> str:
    """A template, of a plain page without the parts between marks."""
    return re.sub("(?s)<!--full-->(.*?)<!--end-->", "" if is_plain else r"\1", static_file(name))


@cache
def static_file(name: str) -> str:
    """A template, style sheet or script of the folder `static`."""
    return (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")


def viewer_script() -> str:
    """The JavaScript module of all pages: maps and cards, with their numbers, texts and words."""
    numbers = f"OVERLAY_STYLE = {json.dumps(asdict(STYLE))}, DOUBTFUL = {DOUBTFUL}"
    words = {language: sorted(word_list(language)) for language in ("en", "de", "fr")}
    texts = f"TEXTS = {static_file('texts.json')}, FUNCTION_WORDS = {json.dumps(words)}"
    scripts = map(static_file, ("maps.js", "viewer.js", "cards.js"))
    return f"const {numbers}, {texts};\n{''.join(scripts)}"


def web_page(
    title: str, styles: tuple[str, ...], body: str, script: str = "", language: str = "en"
) -> str:
    """An HTML document whose Content-Security-Policy forbids loads and other scripts.

    styles: names of style sheets. body: HTML. script: a JavaScript module that runs after it.
    """
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        script = f'<script type="module">{script}</script>\n'
    sheets = "".join(map(static_file, styles))
    fields = {"title": escaped(title), "styles": sheets, "body": body, "script": script}
    return static_file("document.html").format(language=language, policy=policy, **fields)


def escaped(text: str) -> str:
    """Text as one line of HTML without markup."""
    return html.escape(printable(text))


def jpeg_address(photo: Image.Image) -> str:
    """A `data:` address that contains the photo as a JPEG."""
    buffer = io.BytesIO()
    photo.save(buffer, format="JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def phrases(language: str) -> SimpleNamespace:
    """The words of `phrases.json` for a language's tag, such as "de-CH"; English for others."""
    texts = json.loads(static_file("phrases.json"))
    code = language.partition("-")[0]
    code = code if code in texts else ENGLISH
    return SimpleNamespace(language=code, **texts[code])
