"""A caption with its log-probabilities and attention maps."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from PIL import Image

from captioner.arrays import Array
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.files import JsonObject
from captioner.render.overlay import ErasedWord, MappedCaption, Region, save_picture, scale_region
from captioner.render.page import PageItem, phrases, save_html
from captioner.render.panels import frames, panels, save_gif
from captioner.text.keywords import Kind, keywords_of_text
from captioner.text.languages import ENGLISH, neutral, with_full_stop
from captioner.vision.images import ImageSource, load_image, original_size

_CLITICS = frozenset({"'s", "'m", "'d", "'ll", "'re", "'ve", "n't"})
"""Tokens of the Penn Treebank written without a space before them."""
_APART = ("text", "region", "alternatives", "given", "original")
"""Fields that JSON has in another form, or not; nor has it those that equality ignores."""
DRAWN_SIDE = 1024  # Pixels of a photo's side that suffice for every drawing.


def sentence(words: Sequence[str]) -> str:
    """Join words, the inverse of `tokenize`: `a man 's dog` is "a man's dog"."""
    text = ""
    attached = True  # A clitic at the start, or after another one, keeps its space.
    for word in words:
        attach = word in _CLITICS and not attached
        text += word if attach or not text else f" {word}"
        attached = attach
    return text


@dataclass(frozen=True)
class Caption:
    """A caption with an attention map for every word.

    text: the sentence of the T words; 's and n't are attached. A given one is as it was typed.
    log_probability: natural, including the end. word_log_probabilities: T.
    attention: (T, rows, columns), a float32 array, each map summing to one.
    region: left, top, right, bottom of what the model saw, in pixels of the photo; the maps cover
        it. None for captions of annotation vectors.
    alternatives: the other captions (n-best), best first.
    score: log-probability after length normalisation, by which a search ranks.
    confidence: expected share of its content words that people use for the photo; see
        `captioner.caption.confidence`. None without calibration or search.
    word_confidence: T probabilities that a person says the word, or the same in other words; None
        of function words. None without such a calibration, of captions in another language too.
    sure: whether the confidence is at least the model's limit, and that of a translation at least
        its translator's. None without confidence.
    photo: what `overlay`, `gif` and `html` draw on. A path or the content of a file is kept as
        given and read again; of other photos a small copy is kept.
    name: of the photo, such as its path; None of a caption that was made without its photo.
    status: of the photo's file, or of its shard, before the photo was read; None of other photos.
    given: whether a person gave the words, which were then scored; see `Captioner.explain`.
    keywords: the nouns of which the model is sure, in the caption's language, each once.
    language, original: of a translated caption, its tag, such as "de", and the English one.
    erased: how much each content word depends on what its map shows; see `Captioner.erase`.

    Equality ignores the maps, the photo and its name.
    """

    text: str
    words: tuple[str, ...] = field(repr=False)
    log_probability: float
    word_log_probabilities: tuple[float, ...] = field(repr=False)
    attention: Array = field(compare=False, repr=False)
    region: Region | None = field(default=None, repr=False)
    alternatives: tuple[Caption, ...] = field(default=(), repr=False)
    score: float | None = None
    confidence: float | None = None
    word_confidence: tuple[float | None, ...] | None = field(default=None, repr=False)
    sure: bool | None = None
    photo: ImageSource | None = field(default=None, compare=False, repr=False)
    name: str | None = field(default=None, compare=False, repr=False)
    status: os.stat_result | None = field(default=None, compare=False, repr=False)
    given: bool = False
    keywords: tuple[str, ...] = field(default=(), repr=False)
    language: str | None = None
    original: Caption | None = field(default=None, repr=False)
    erased: tuple[ErasedWord, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def shown_confidence(self) -> float | None:
        """The confidence to two decimals, rounded down below the model's limit."""
        if self.confidence is None:
            return None
        rounded = math.floor if self.sure is False else round
        return rounded(100 * self.confidence) / 100

    @property
    def doubt(self) -> str:
        """A note on low confidence; empty otherwise."""
        return phrases(ENGLISH).not_sure if self.sure is False else ""

    @property
    def drawn_doubt(self) -> str:
        """`doubt` in the caption's language, for drawings and pages."""
        return self.doubt and phrases(self.language or ENGLISH).not_sure

    def of_photo(self, photo: ImageSource | None, region: Region, name: str = "") -> Caption:
        """The caption and its alternatives with their photo, region and, if given, name."""
        rest = tuple(version.of_photo(photo, region, name) for version in self.alternatives)
        return replace(self, photo=photo, region=region, name=name or self.name, alternatives=rest)

    def overlay(self, path: str | os.PathLike[str], title: str = "", strength: float = 0.8) -> None:
        """Draw the photo and a panel a word: a .png, .jpg, .webp or .pdf.

        title: a small line on top. strength: of the dimming where the model did not look, 0 to 1.
        """
        save_picture(path, self.panels(title, strength))

    def gif(self, path: str | os.PathLike[str], strength: float = 0.8, width: int = 0) -> None:
        """Animate the photo, one frame a word. width: in pixels; see `captioner.render.panels`."""
        save_gif(path, self.frames(strength, width))

    def frames(self, strength: float = 0.8, width: int = 0) -> list[Image.Image]:
        """The frames that `gif` writes."""
        photo, region, caption = self.drawn()
        return frames(photo, region, caption, strength, width)

    def html(self, path: str | os.PathLike[str], title: str = "", strength: float = 0.8) -> None:
        """Write a page on which to point at words. title: the line under the photo."""
        save_html(path, [self.page_item(title)], strength=strength)

    def panels(self, title: str = "", strength: float = 0.8) -> Image.Image:
        """The picture that `overlay` writes."""
        photo, region, caption = self.drawn()
        return panels(photo, region, caption, title, strength=strength)

    def page_item(self, title: str = "") -> PageItem:
        """The part of a page that `html` writes."""
        photo, region, caption = self.drawn()
        others = [other._without_photo() for other in self.alternatives if other.words]
        return replace(PageItem.of(photo, region, [caption, *others], title), text=self.text)

    def drawn(self) -> tuple[Image.Image, Region, MappedCaption]:
        """Photo, region in its pixels, and caption, as `captioner.render` draws them."""
        if self.photo is None or self.region is None or not self.words:
            raise UserError("a caption without its photo, or without words, cannot be drawn")
        photo = self.photo
        if not isinstance(photo, Image.Image):
            photo = load_image(photo, sufficient_side=DRAWN_SIDE)
        region = scale_region(self.region, original_size(photo), photo.size)
        return photo, region, self._without_photo()

    def _without_photo(self) -> MappedCaption:
        return MappedCaption(
            words=self.words,
            attention=self.attention,
            doubt=self.drawn_doubt,
            language=self.language or ENGLISH,
            confidence=self.shown_confidence,
            word_confidence=self.word_confidence,
            erased=self.erased,
        )

    def with_keywords(self, kind: Kind) -> Caption:
        """With other keywords, also of its alternatives: "all" content words, or "none"."""
        if kind == "nouns":
            return self
        keywords = keywords_of_text(self.text, kind, self.language or ENGLISH)
        rest = tuple(other.with_keywords(kind) for other in self.alternatives)
        return replace(self, keywords=keywords, alternatives=rest)

    def with_full_stop(self) -> Caption:
        """With a text that has a capital and a full stop, also its alternatives."""
        rest = tuple(other.with_full_stop() for other in self.alternatives)
        return replace(self, text=with_full_stop(self.text), alternatives=rest)

    def to_dict(self) -> JsonObject:
        """The plain form for JSON, without the maps and what is None."""
        plain: JsonObject = {"caption": self.text}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.compare and each.name not in _APART and value is not None:
                plain[each.name] = list(value) if isinstance(value, tuple) else value
        if self.original:
            plain["original"] = self.original.to_dict()
        if self.erased:
            plain["erased"] = [word.to_dict() for word in self.erased]
        if self.alternatives:
            plain["alternatives"] = [other.to_dict() for other in self.alternatives]
        return plain


def fitting(captions: Sequence[Caption], search: SearchOptions) -> list[Caption]:
    """Captions in the words that are asked for, those that fit first; else the shortest first."""
    if search.people == "neutral":
        words = (tuple(map(neutral, caption.words)) for caption in captions)
        pairs = zip(captions, words, strict=True)
        captions = [replace(each, words=few, text=neutral(each.text)) for each, few in pairs]
    if not search.maximum_characters:
        return list(captions)

    def too_long(caption: Caption) -> int:
        text = with_full_stop(caption.text) if search.sentence else caption.text
        return len(text) if len(text) > search.maximum_characters else 0

    return sorted(captions, key=too_long)
