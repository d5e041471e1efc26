"""Flickr30k Entities: phrases of captions and the boxes of what they name.

Plummer et al. 2015, *Flickr30k Entities: Collecting Region-to-Phrase Correspondences for Richer
Image-to-Sentence Models*; the folder has `Annotations/ID.xml` with the boxes and `Sentences/ID.txt`
with the captions of the photo `ID.jpg`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from captioner.data.boxes import Box
from captioner.data.grounding import Target
from captioner.data.records import ImageId
from captioner.errors import UserError
from captioner.files import read_text
from captioner.text.function_words import FUNCTION_WORDS
from captioner.text.tokenizer import tokenize

_PHRASE = re.compile(r"\[/EN#(\d+)((?:/[^\s/\[\]]+)*)\s+([^\[\]]+)\]")

# Words of phrases that name nothing themselves: function words and numbers.
_NUMBERS = "one two three four five six seven eight nine ten several many few various"
_NAMES_NOTHING = FUNCTION_WORDS | set(_NUMBERS.split())


@dataclass(frozen=True)
class Phrase:
    """The words `first` to `last` of a sentence, `last` not included, and the entity they name."""

    first: int
    last: int
    entity: str


@dataclass(frozen=True)
class GroundedSentence:
    """A caption of people's, with what its words are about.

    words: the T words, as `tokenize` makes them. targets: (T,) of each word in a phrase the boxes
        of its entity; None for words outside phrases, and for entities without a box.
    """

    words: tuple[str, ...]
    targets: tuple[Target | None, ...]


@dataclass(frozen=True)
class _Photo:
    sentences: tuple[tuple[tuple[str, ...], tuple[Phrase, ...]], ...]
    targets: dict[str, Target]  # by entity, those with a box


class Entities:
    """The annotated photos of a folder; a `Grounding`. Made by `read_entities`.

    An image is called by the name of its file, with or without `.jpg` and folders before it. Its
    files are read when it is first asked for.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._photos: dict[str, _Photo | None] = {}

    def __contains__(self, image_id: ImageId) -> bool:
        """Whether one of an image's two files is there; they are not read."""
        return any(map(os.path.lexists, self._files(_name(image_id))))

    def __str__(self) -> str:
        return f"Flickr30k Entities {self._folder}"

    def sentences(self, image_id: ImageId) -> list[GroundedSentence]:
        """The captions that people wrote about a photo, with the boxes of their words.

        Raises `UserError` for an image that is not in the folder, and for ill-formed files.
        """
        photo = self._photo(image_id)
        if photo is None:
            raise UserError(f"image {image_id!r} is not in {self}")
        grounded = []
        for words, phrases in photo.sentences:
            targets: list[Target | None] = [None] * len(words)
            for phrase in phrases:
                for place in range(phrase.first, phrase.last):
                    targets[place] = photo.targets.get(phrase.entity)
            grounded.append(GroundedSentence(words, tuple(targets)))
        return grounded

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """What the words of any caption of a photo are about.

        A word that an annotated phrase of that photo has too gets the boxes of the phrase's
        entity, after Liu et al. 2017, *Attention Correctness in Neural Image Captioning*, section
        3.2. It is looked for among the last words of phrases ("shirt" of "a red shirt") and only
        then among their other words ("red"). If several entities share the word, it gets the
        boxes of all of them. Function words ("a", "two", "in") get None, as do all words if the
        image is not in the folder.

        Raises `UserError` for ill-formed files.
        """
        photo = self._photo(image_id)
        if photo is None:
            return [None] * len(words)
        heads: dict[str, set[str]] = {}
        others: dict[str, set[str]] = {}
        for sentence, phrases in photo.sentences:
            for phrase in phrases:
                content = [
                    word
                    for word in sentence[phrase.first : phrase.last]
                    if word not in _NAMES_NOTHING
                ]
                if phrase.entity in photo.targets:
                    for word in content:
                        others.setdefault(word, set()).add(phrase.entity)
                    for word in content[-1:]:
                        heads.setdefault(word, set()).add(phrase.entity)
        return [_union(photo, heads.get(word) or others.get(word) or set()) for word in words]

    def _photo(self, image_id: ImageId) -> _Photo | None:
        name = _name(image_id)
        if name not in self._photos:
            boxes, text = self._files(name)
            if image_id not in self:
                self._photos[name] = None
            else:
                self._photos[name] = _Photo(_read_sentences(text), _read_boxes(boxes))
        return self._photos[name]

    def _files(self, name: str) -> tuple[Path, Path]:
        """Where the boxes and the sentences of a photo are, if there are any."""
        return (
            self._folder / "Annotations" / f"{name}.xml",
            self._folder / "Sentences" / f"{name}.txt",
        )


def _name(image_id: ImageId) -> str:
    """What the files of an image are called."""
    return re.sub(r"\.jpe?g$", "", Path(str(image_id)).name, flags=re.IGNORECASE)


def read_entities(folder: str | os.PathLike[str]) -> Entities:
    """Open a folder of Flickr30k Entities.

    Raises `UserError` when it has no folders `Annotations` and `Sentences`; what is wrong with the
    files of an image is told when that image is asked for.
    """
    for name in ("Annotations", "Sentences"):
        if not (Path(folder) / name).is_dir():
            raise UserError(f"Flickr30k Entities {folder} has no folder {name}")
    return Entities(Path(folder))


def parse_sentence(line: str, where: str) -> tuple[tuple[str, ...], tuple[Phrase, ...]]:
    """The words of a sentence and its phrases: `[/EN#1/people A man] in [/EN#2/clothing a hat]`.

    Phrases without a word, such as punctuation, are left out.

    Raises `UserError`, which calls the sentence `where`, for a phrase that is not closed or has
    no number.
    """
    words: list[str] = []
    phrases: list[Phrase] = []
    end = 0
    for match in _PHRASE.finditer(line):
        words += tokenize(_plain(line[end : match.start()], where))
        inside = tokenize(match[3])
        if inside:
            phrases.append(Phrase(len(words), len(words) + len(inside), match[1]))
        words += inside
        end = match.end()
    words += tokenize(_plain(line[end:], where))
    return tuple(words), tuple(phrases)


def _plain(text: str, where: str) -> str:
    if "[/" in text:
        raise UserError(f"{where} has a phrase that is not of the form [/EN#1/people A man]")
    return text


def _read_sentences(file: Path) -> tuple[tuple[tuple[str, ...], tuple[Phrase, ...]], ...]:
    lines = enumerate(read_text(file, "sentence file").splitlines(), start=1)
    return tuple(
        parse_sentence(line, f"line {number} of sentence file {file}")
        for number, line in lines
        if line.strip()
    )


def _read_boxes(file: Path) -> dict[str, Target]:
    """The boxes of each entity that has some."""
    where = f"annotation file {file}"
    text = read_text(file, "annotation file")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # They can make a small file a huge one.
        raise UserError(f"{where} has a document type or entity declaration, which is not read")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise UserError(f"{where} is not valid XML ({error})") from None
    size = (_whole(root, "size/width", where), _whole(root, "size/height", where))
    boxes: dict[str, list[Box]] = {}
    for number, thing in enumerate(root.findall("object")):
        record = f"object {number} of {where}"
        names = [(name.text or "").strip() for name in thing.findall("name")]
        if not names or not all(names):
            raise UserError(f"{record} has no name")
        for box in thing.findall("bndbox"):
            edges = _edges(box, size, record)
            for name in names:
                boxes.setdefault(name, []).append(edges)
    return {name: Target(size, tuple(found)) for name, found in boxes.items()}


def _edges(box: ElementTree.Element, size: tuple[int, int], where: str) -> Box:
    """The edges of a box that is written as the numbers of its first and last pixels, from 1."""
    left, top, right, bottom = (
        _number(box, name, where) for name in ("xmin", "ymin", "xmax", "ymax")
    )
    edges = (max(left - 1, 0.0), max(top - 1, 0.0), min(right, size[0]), min(bottom, size[1]))
    if edges[0] >= edges[2] or edges[1] >= edges[3]:
        raise UserError(f"{where} has a box without a pixel in its picture")
    return edges


def _number(element: ElementTree.Element, name: str, where: str) -> float:
    try:
        value = float(element.findtext(name, ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{where} has no number {name}")
    return value


def _whole(element: ElementTree.Element, name: str, where: str) -> int:
    value = _number(element, name, where)
    if value < 1:
        raise UserError(f"{where} has a {name} below 1")
    return int(value)


def _union(photo: _Photo, entities: set[str]) -> Target | None:
    """Everything in the boxes of any of the entities."""
    targets = [photo.targets[entity] for entity in sorted(entities)]
    if len(targets) < 2:
        return targets[0] if targets else None
    boxes = dict.fromkeys(box for target in targets for box in target.boxes)
    return Target(targets[0].size, tuple(boxes))
