"""Photos with captions, as every reader yields them, and rules common to all sources."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from captioner.errors import UserError, counted
from captioner.files import existing_path
from captioner.text.languages import is_valid_unicode
from captioner.text.tokenizer import tokenize

if TYPE_CHECKING:
    from PIL import Image

    from captioner.vision.shards import ShardMember

ImageId = int | str  # COCO's number or text, or a file name.
Splits = Sequence[str | None]  # None stands for all photos.
OnProblem = Literal["refuse", "skip"]
"""Refuse the whole source, or skip the records with a problem."""

IN_TRAINING = "--set data.on_problem=skip"

TRAIN, VALIDATION = "train", "val"  # The splits that are drawn.

SPLIT_OF = {"train": TRAIN, "training": TRAIN, "test": "test", "testing": "test"}
SPLIT_OF |= dict.fromkeys(("val", "validation", "valid", "dev"), VALIDATION)
"""The split that a folder's or row's name means, as people and Hugging Face's datasets name it."""


def meant_split(split: str | None) -> str | None:
    """The split that a name means: "validation" and "dev" are "val"."""
    return split and SPLIT_OF.get(f"{split}".lower(), split)


_LISTED_OF_EACH_KIND = 3
_SEED = 0  # Draws the splits.
_FEWEST_DRAWN = 4  # Photos of which some are drawn for validation.


@dataclass(frozen=True)
class Example:
    """A photo and its captions, stripped; none of a photo that is only to be captioned."""

    image_id: ImageId  # COCO's, else the file name.
    source: Path | ShardMember | Image.Image
    captions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`image_id` as text, as in a feature store."""
        return str(self.image_id)

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each caption."""
        return [tokenize(caption) for caption in self.captions]


@dataclass
class Problems:
    """The problems of a source: the records of each kind, as "empty caption" of "line 12"."""

    on_problem: OnProblem = "refuse"
    source: str = ""  # The file's name, set by the reader.
    skipping: str = "--on-problem skip"  # The advice of a refusal.
    naming_images: str = "--images"  # The option of the photos' folder.
    by_captioner: bool = False  # Whether captions count that captioner wrote in a folder.
    draws_splits: bool = True  # If the source has none; False: every photo is in the first split.
    left_out: int = 0  # Captions that captioner wrote.
    notes: list[str] = field(default_factory=list)  # Such as which splits were drawn.
    kinds: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, record: str) -> None:
        """Note a problem of a record; `settle` tells each kind once, with some of its records."""
        # Half a surrogate pair cannot be written to a log.
        printable = record.encode("utf-8", "backslashreplace").decode("utf-8")
        self.kinds.setdefault(kind, []).append(printable)

    @property
    def sentences(self) -> list[str]:
        """The notes, and if there are problems the count of each kind and its first few."""
        left_out = [f"{self.source}: left out {self._listing()}"] if self.kinds else []
        return self.notes + left_out

    def settle(self) -> None:
        """Under "refuse", raise `UserError` if there is a problem. Call after reading."""
        if self.kinds and self.on_problem == "refuse":
            advice = f"({self.skipping} leaves {'it' if len(self) == 1 else 'them'} out)"
            raise UserError(f"{self.source} has {self._listing()} {advice}")

    def _listing(self) -> str:
        parts = []
        for kind, records in self.kinds.items():
            count = len(records)
            if count > 1:  # The first noun: "images without a split".
                nouns = "image|caption|row|line|sentence|shard|description"
                kind = re.sub(nouns, r"\g<0>s", kind, count=1)
            listed = records[:_LISTED_OF_EACH_KIND]
            if more := count - len(listed):
                listed.append(f"and {more:,} more")
            parts.append(f"{count:,} {kind} ({'; '.join(listed)})")
        return ", ".join(parts)

    def __len__(self) -> int:
        return sum(map(len, self.kinds.values()))


@dataclass
class SourcePhoto:
    """A photo as a reader finds it."""

    image_id: ImageId
    path: Path | ShardMember
    record: str  # Its name, for messages.
    split: str | None = None  # None if the source has no splits.
    name: str = ""  # By which it is drawn for validation; by default its id.
    captions: list[tuple[str, str]] = field(default_factory=list)  # Each with its record.


class Collector:
    """Joins the photos and captions of a source, and counts what is wrong with them.

    Ids are compared as text: 1 is "1". check_files: whether the photos must exist. images: their
        folder if it was given, in which photos of another machine are looked for (see `_moved`).
    """

    def __init__(self, problems: Problems, check_files: bool, images: Path | None = None) -> None:
        self.problems = problems
        self._check_files = check_files
        self._images = images
        self._photos: dict[str, SourcePhoto] = {}

    def __contains__(self, image_id: ImageId) -> bool:
        return str(image_id) in self._photos

    def add(self, photo: SourcePhoto) -> bool:
        """Add a photo; False, and a problem, if another one of its id was added before."""
        photo.split = meant_split(photo.split)
        first = self._photos.setdefault(str(photo.image_id), photo)
        if first is photo:
            return True
        if first.split != photo.split:  # A model must not be validated on its training data.
            both = f"{first.split or 'none'} and {photo.split or 'none'}"
            self.problems.add("duplicate image in another split", f"{photo.record}: {both}")
        elif first.path != photo.path:
            self.problems.add("duplicate image", f"{photo.record}, as {first.record}")
        return (first.split, first.path) == (photo.split, photo.path)

    def add_caption(self, image_id: ImageId, text: str, record: str) -> None:
        """Add a caption to an image. record: its name, for messages."""
        if image_id in self:
            self._photos[str(image_id)].captions.append((text.strip(), record))
        else:
            self.problems.add("caption without an image", f"{record} of image {image_id}")

    def examples(self, names: Splits) -> list[list[Example]]:
        """The photos with captions of each split, None for all, in the order of adding.

        names: as `meant_split` gives them; `train` and `val` of a source without splits are drawn.

        Raises `UserError` for a refused problem in these splits and if one has no photo.
        """
        photos = self._photos.values()
        if not any(photo.split for photo in photos):
            if not self.problems.draws_splits:
                for photo in photos:
                    photo.split = names[0]
            elif photos and {TRAIN, VALIDATION} & {*names}:
                self._draw_splits(VALIDATION in names)
        own_splits = sorted({photo.split for photo in photos if photo.split})
        wanted = [photo for photo in photos if None in names or photo.split in names]
        for photo in wanted:
            if self._check_files and isinstance(photo.path, Path):
                photo.path = existing_path(photo.path)
        self._find_moved(wanted)
        usable = [(photo.split, self._example(photo)) for photo in wanted]
        for photo in photos if own_splits and None not in names else ():
            if photo.split is None:
                self.problems.add("image without a split", photo.record)
        self.problems.settle()
        by_split = []
        for name in names:
            by_split.append([each for own, each in usable if each and name in (None, own)])
            if not by_split[-1]:
                fault = f"{self.problems.source} has no photo with a caption"
                if name and photos:
                    fault += f" in split {name!r}; its splits: {', '.join(own_splits) or 'none'}"
                raise UserError("; ".join([fault, *self.problems.sentences]))
        return by_split

    def _find_moved(self, photos: Sequence[SourcePhoto]) -> None:
        """If none of the photos exists, find them in the folder of images, or refuse them."""
        if not photos or any(map(self._exists, photos)):
            return
        paths = [photo.path for photo in photos if isinstance(photo.path, Path)]
        where = f"none of its {counted(len(photos), 'photo')} exists, the first would be {paths[0]}"
        if self._images:
            moved = _moved(paths, self._images)
            for photo, path in zip(photos, moved, strict=False):
                photo.path = path
            where += f", and none is in {self._images} by the end of its path"
        if not any(map(self._exists, photos)):
            advice = f"give their folder ({self.problems.naming_images})"
            raise UserError(f"{self.problems.source}: {where}; {advice}")

    def _draw_splits(self, is_validated: bool) -> None:
        """Draw validation photos: a tenth, but at least 50, or a quarter of fewer than 200.

        At least two are drawn, but none of fewer than four photos. Drawn by a hash of their names,
        most photos keep their split when others are added.
        """

        def drawn_by(photo: SourcePhoto) -> bytes:
            name = photo.name or photo.image_id
            return hashlib.sha256(f"{_SEED} {name}".encode("utf-8", "replace")).digest()

        photos = sorted(self._photos.values(), key=drawn_by)
        source, total = self.problems.source, len(photos)
        for photo in photos:
            photo.split = TRAIN
        if total >= _FEWEST_DRAWN:
            count = max(total // 10, min(50, max(2, total // 4)))
            for photo in photos[:count]:
                photo.split = VALIDATION
            share = f"{count:,} of its {total:,} photos, drawn with seed {_SEED}"
            drawn = f"{share}, are the split {VALIDATION}, the others {TRAIN}"
            self.problems.notes.append(f"{source} has no splits: {drawn}")
        elif is_validated:
            advice = f"training draws its validation photos from {_FEWEST_DRAWN} at least"
            raise UserError(f"{source} has {counted(total, 'photo')} and no splits; {advice}")

    def _exists(self, photo: SourcePhoto) -> bool:
        path = photo.path
        return not (self._check_files and isinstance(path, Path)) or os.path.isfile(path)

    def _example(self, photo: SourcePhoto) -> Example | None:
        """A photo with its captions that have words; None, and a problem, if it lacks either."""
        captions = []
        for text, record in photo.captions:
            if not any(map(str.isalnum, text)):
                self.problems.add("empty caption", record)
            elif not is_valid_unicode(text):
                self.problems.add("caption of invalid Unicode", record)
            else:
                captions.append(text)
        if not self._exists(photo):
            self.problems.add("missing image", f"{photo.path}, {photo.record}")
        elif captions:
            return Example(photo.image_id, photo.path, tuple(captions))
        elif not photo.captions:  # Captions without words were counted above.
            self.problems.add("image without captions", photo.record)
        return None


def _moved(paths: Sequence[Path], images: Path) -> list[Path]:
    """Photos of another machine in a folder, by the ends of their paths: where the most exist.

    All paths lose as many first parts, or all but the names; as few as possible, and never so many
    that two become one.
    """
    fewest = min(len(path.parts) for path in paths)
    ends = (tuple(Path(*path.parts[first:]) for path in paths) for first in (*range(1, fewest), -1))
    distinct = [of_all for of_all in dict.fromkeys(ends) if len({*of_all}) == len({*paths})]
    places = ([existing_path(images / end) for end in of_all] for of_all in distinct)
    return max(places, key=lambda place: sum(map(os.path.isfile, place)), default=[])
