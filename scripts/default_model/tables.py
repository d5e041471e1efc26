"""Lists the photos that the packaged captioner learns from, with their captions.

Flickr8k shows people and dogs outdoors; the everyday photos show food, rooms, streets and animals.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, filterfalse
from pathlib import Path
from typing import NamedTuple

from captioner.data.parallel import read_lines
from captioner.data.readers import read_splits
from captioner.files import read_json, write_text
from captioner.text.languages import article_before
from captioner.text.tokenizer import tokenize

SEED = 28
"""Of the photos that are kept out."""

KEPT_OUT = {"everyday": 600, "flickr": 400}
"""How many photos of each kind are in no training table: settings are chosen by them."""

WEAK_KINDS = ("question", "captioner")
"""Captions of the file of weak ones that are true for the most part; they count half."""

NO_PHOTO = re.compile(
    r"\b(no|not|unable|cannot|can't|isn't)\b.*\b(image|picture|photo|page)s?\b"
    r"|\b(image|picture)s?\b.*\b(not|unable|unavailable)\b|\bhit\b.*\b(image|describe)",
    re.IGNORECASE,
)
"""Captions that say that there is no photo, as writers did where it failed to load."""

Captions = Mapping[Path, list[str]]


class Row(NamedTuple):
    """A photo, one of its captions, and the split."""

    image: Path
    caption: str
    split: str


@dataclass(frozen=True)
class Folders:
    """The folders of the data. flickr: Flickr8k with its two lists. everyday: the other photos."""

    flickr: Path
    everyday: Path

    def flickr_captions(self, split: str) -> Captions:
        """Captions of Flickr8k's `train` or `val`, by photo."""
        tokens, photos = self.flickr / "Flickr8k.token.txt", self.flickr / "images"
        (examples,) = read_splits("flickr8k", tokens, photos, [str(self.flickr / f"{split}.txt")])
        return {Path(str(each.source)): list(each.captions) for each in examples}

    def everyday_captions(self, split: str) -> Captions:
        """Captions of the everyday photos of `train` or `val`, by photo."""
        file = self.everyday / f"captions_{split}.json"
        (examples,) = read_splits("coco", file, self.everyday / "photos")
        return {Path(str(each.source)): list(each.captions) for each in examples}

    def weak_captions(self) -> Captions:
        """Captions of `WEAK_KINDS` of other everyday photos, by photo."""
        weak = read_json(self.everyday / "captions_weak.json", "captions")
        names = {image["id"]: image["file_name"] for image in weak["images"]}
        captions = defaultdict(list)
        for each in weak["annotations"]:
            if each["kind"] in WEAK_KINDS:
                photo = self.everyday / "unlabelled" / names[each["image_id"]]
                captions[photo].append(each["caption"])
        return captions


def split_photos(captions: Captions, count: int) -> tuple[Captions, Captions]:
    """The photos to learn from, and `count` that are kept out."""
    kept = set(random.Random(SEED).sample(sorted(captions), count))
    return (
        {photo: captions[photo] for photo in captions if photo not in kept},
        {photo: captions[photo] for photo in captions if photo in kept},
    )


def one_spelling(caption: str) -> str:
    """Spell "close-up" as "close up", correct "a" and "an", and end no caption at a comma.

    A model that knows both spellings says "a close up of a close-up".
    """
    spelled = re.sub(r"\bclose-?up\b", "close up", caption, flags=re.IGNORECASE)
    articles = r"\b(a)n?(?= (\w+))"
    corrected = re.sub(articles, _article, spelled, flags=re.IGNORECASE)
    return corrected.rstrip(" ,")


def _article(found: re.Match[str]) -> str:
    return found[1] + article_before(found[2].lower())[1:]


def rows_of(split: str, captions: Captions) -> Iterator[Row]:
    """A row for each caption; those to learn from have one spelling."""
    for photo, texts in captions.items():
        for text in texts:
            yield Row(photo, one_spelling(text) if split == "train" else text, split)


def write_table(file: Path, rows: Iterable[Row]) -> None:
    """Write a table in JSONL."""
    lines = (
        json.dumps({"image": str(row.image.resolve()), "caption": row.caption, "split": row.split})
        for row in rows
    )
    write_text(file, "\n".join(lines) + "\n")


def write_texts(file: Path, captions: Path, held_out: Path | None, chosen: Iterable[str]) -> None:
    """Write people's captions without photos, one a line.

    held_out: COCO captions that are left out, to measure on. chosen: others, of photos that
        settings are chosen by.
    """
    kept_back = {tuple(tokenize(one_spelling(text))) for text in chosen}
    if held_out is not None:
        examples = read_splits("coco", held_out, check_files=False)[0]
        texts = chain.from_iterable(each.captions for each in examples)
        kept_back |= {tuple(tokenize(one_spelling(text))) for text in texts}
    learned = filterfalse(NO_PHOTO.search, map(one_spelling, read_lines(captions)))
    kept = [text for text in learned if tuple(tokenize(text)) not in kept_back]
    write_text(file, "\n".join(kept) + "\n")


def write_tables(folders: Folders, held_out: Path | None, out: Path) -> None:
    """Write a table for each training step, `chosen.jsonl` to validate on, and `texts.txt`."""
    captions_of = {"everyday": folders.everyday_captions, "flickr": folders.flickr_captions}
    people: list[Row] = []
    others: list[Row] = []
    chosen: list[Row] = []
    for name, captions in captions_of.items():
        learned, kept = split_photos(captions("train"), KEPT_OUT[name])
        people += rows_of("train", learned)
        chosen += rows_of("val", kept)
        others += chain(rows_of(f"{name}_kept", kept), rows_of(name, captions("val")))
    weak = list(rows_of("train", folders.weak_captions()))
    write_table(out / "frozen.jsonl", [*people, *people, *weak, *others])
    once = dict.fromkeys(people)  # A photo may have the same caption twice.
    write_table(out / "whole.jsonl", [*once, *weak[1::2]])
    write_table(out / "rewarded.jsonl", once)
    write_table(out / "chosen.jsonl", chosen)
    texts = folders.everyday / "text" / "coco_captions.txt.gz"
    write_texts(out / "texts.txt", texts, held_out, [row.caption for row in chosen])
