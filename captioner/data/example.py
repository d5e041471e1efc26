"""Photos with their captions, as every reader yields them, and the rules common to all sources."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from captioner.errors import UserError
from captioner.text.plain_text import is_valid_unicode
from captioner.text.tokenizer import tokenize

if TYPE_CHECKING:
    from PIL import Image

    from captioner.vision.shards import ShardMember

ImageId = int | str
"""COCO's number or text, or a file name."""

OnProblem = Literal["refuse", "skip"]
"""Refuse the whole source, or skip the records with a problem."""

IN_TRAINING = "in training --set data.on_problem=skip"

_LISTED_OF_EACH_KIND = 10


@dataclass(frozen=True)
class Example:
    """A photo and its captions.

    image_id: COCO's id, else the file name.
    path: the photo's file; in a shard, the photo; of a generated picture, the picture.
    captions: stripped; none of a photo that is only to be captioned.
    tokens: the source's own words of each caption.
    """

    image_id: ImageId
    path: Path | ShardMember | Image.Image
    captions: tuple[str, ...] = ()
    tokens: tuple[tuple[str, ...], ...] | None = None

    @property
    def name(self) -> str:
        """`image_id` as text, as in a feature store."""
        return str(self.image_id)

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each caption: the source's own, else from `tokenize`."""
        if self.tokens is not None:
            return [list(words) for words in self.tokens]
        return [tokenize(caption) for caption in self.captions]


@dataclass
class Problems:
    """The problems of one source: sentences by kind, such as "line 12 has no words".

    on_problem: for `settle`. skipping: the options that skip them, for its refusal.
    source: the file's name, set by the reader. note: how photos were chosen, where the source does
    not say it. counts: of the photos in a folder, in words. by_captioner: whether captions count
    that captioner wrote in a folder. draws_splits: `train` and `val` of a source without splits;
    otherwise either is all of it.
    """

    on_problem: OnProblem = "refuse"
    source: str = ""
    skipping: str = f"--on-problem skip, {IN_TRAINING},"
    note: str = ""
    counts: str = ""
    by_captioner: bool = False
    draws_splits: bool = True
    kinds: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, sentence: str) -> None:
        """Record a problem; `settle` reports all together."""
        # Half a surrogate pair cannot be written to a log.
        printable = sentence.encode("utf-8", "backslashreplace").decode("utf-8")
        self.kinds.setdefault(kind, []).append(printable)

    @property
    def sentences(self) -> list[str]:
        """The counts, the note and the summary; empty if there is nothing to say."""
        counts = f"{self.source}: {self.counts}" if self.counts else ""
        summary = self.summary() if self.kinds else ""
        return [each for each in (counts, self.note, summary) if each]

    def summary(self) -> str:
        """One sentence: the source, the count of each kind, and the first few of each."""
        listing = f"left out {self._listing()}" if self.kinds else "nothing left out"
        return f"{self.source}: {listing}"

    def settle(self) -> None:
        """Under "refuse", raise `UserError` if there is a problem. Call after reading."""
        if self.kinds and self.on_problem == "refuse":
            advice = f"{self.skipping} leaves them out"
            raise UserError(f"{self.source} has {self._listing()} ({advice})")

    def _listing(self) -> str:
        parts = []
        for kind, sentences in self.kinds.items():
            count = len(sentences)
            if count > 1:  # The noun comes first: "rows without a split".
                kind = re.sub("image|caption|line|sentence|row|shard", r"\g<0>s", kind, count=1)
            listed = "; ".join(sentences[:_LISTED_OF_EACH_KIND])
            if count > _LISTED_OF_EACH_KIND:
                listed += f"; and {count - _LISTED_OF_EACH_KIND:,} more"
            parts.append(f"{count:,} {kind} ({listed})")
        return ", ".join(parts)

    def __len__(self) -> int:
        return sum(map(len, self.kinds.values()))


def id_matcher(listed: Sequence[ImageId], used: Sequence[ImageId]) -> Callable[[ImageId], ImageId]:
    """A function from the ids that records use to those that are listed.

    They match as they are and, where all of one side are text, as text: "1" is 1.
    """
    are_text = any(all(isinstance(each, str) for each in side) for side in (listed, used))
    by_text = {str(each): each for each in reversed(listed)} if are_text else {}
    return lambda image_id: by_text.get(str(image_id), image_id)


@dataclass
class _Photo:
    """record: its name, for messages."""

    record: str
    path: Path | ShardMember
    captions: list[str] = field(default_factory=list)
    tokens: list[tuple[str, ...]] = field(default_factory=list)


class Collector:
    """Joins the photos and captions of a source, and counts what is wrong with them.

    check_files: whether the photos must exist. splits: of the photos, see `is_in_split`.
    """

    def __init__(self, problems: Problems, check_files: bool = True) -> None:
        self.problems = problems
        self.splits: dict[ImageId, str | None] = {}
        self._check_files = check_files
        self._photos: dict[ImageId, _Photo] = {}
        self._names: dict[str, ImageId] = {}

    def __contains__(self, image_id: ImageId) -> bool:
        return image_id in self._photos

    def add_image(self, image_id: ImageId, path: Path | ShardMember, record: str) -> bool:
        """Add an image; False, and a problem, if it was added before, also as text.

        record: the record's name, for messages.
        """
        first = self._photos.get(self._names.setdefault(str(image_id), image_id))
        if first is not None:
            self.problems.add("duplicate image", f"{record} is the same as {first.record}")
            return False
        self._photos[image_id] = _Photo(record, path)
        return True

    def is_in_split(self, image_id: ImageId, split: str | None, record: str) -> bool:
        """Whether `split` is the first split of this image; a second one is a problem.

        Call it for every image of the source: a model must not be validated on its training data.
        """
        first = self.splits.setdefault(image_id, split)
        if split == first:
            return True
        sentence = f"{record} is in split {split!r}, but was in {first!r} before"
        self.problems.add("image in two splits", sentence)
        return False

    def add_caption(
        self, image_id: ImageId, text: str, record: str, tokens: Sequence[str] | None = None
    ) -> None:
        """Add a caption to an image. tokens: the source's own words of the caption."""
        text = text.strip()
        if image_id not in self._photos:
            sentence = f"{record} is of image {image_id}, which is not there"
            self.problems.add("caption without an image", sentence)
        elif not _has_words(text) or (tokens is not None and not any(map(_has_words, tokens))):
            self.problems.add("empty caption", f"{record} has no words")
        elif not all(map(is_valid_unicode, (text, *(tokens or ())))):
            self.problems.add("caption of invalid Unicode", f"{record} has half a character")
        else:
            self._photos[image_id].captions.append(text)
            if tokens is not None:
                self._photos[image_id].tokens.append(tuple(tokens))

    def examples(self) -> list[Example]:
        """The photos with captions, in the order in which they were added.

        Raises `UserError` for a refused problem and if no photo is left.
        """
        paths = [photo.path for photo in self._photos.values()]
        if self._check_files and len(paths) > 1 and not any(map(_exists, paths)):
            raise UserError(
                f"{self.problems.source}: none of its {len(paths):,} photos exists, the first "
                f"would be {paths[0]}; give their folder (--images, in training --set "
                "data.images=...)"
            )
        kept = []
        for image_id, photo in self._photos.items():
            if self._check_files and not _exists(photo.path):
                self.problems.add("missing image", f"{photo.record} has no file {photo.path}")
            elif not photo.captions:
                self.problems.add("image without captions", f"{photo.record} has no captions")
            else:
                is_tokenized = len(photo.tokens) == len(photo.captions)
                tokens = tuple(photo.tokens) if is_tokenized else None
                kept.append(Example(image_id, photo.path, tuple(photo.captions), tokens))
        self.problems.settle()
        if not kept:
            raise UserError(f"no image with a caption is left of {self.problems.summary()}")
        return kept


def _exists(path: Path | ShardMember) -> bool:
    """Whether a file is there; a photo that a shard lists is."""
    return not isinstance(path, Path) or os.path.isfile(path)


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)
