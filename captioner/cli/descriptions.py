"""Describes photos in sidecars, in texts beside them and in themselves."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from captioner.caption.caption import Caption
from captioner.cli.embedding import Embedder
from captioner.cli.program import on_a_line, report
from captioner.cli.sidecars import shared_sidecars, sidecar_paths, write_caption_text, write_xmp
from captioner.data.xmp import Description
from captioner.demo import DEMO_PHOTO
from captioner.errors import UserError
from captioner.files import write_each
from captioner.text.languages import ENGLISH, nouns
from captioner.vision.images import ImageSource

PLACES = ("xmp", "text", "embed")
"""The options that name where."""


class Descriptions:
    """Writes captions where --xmp, --text and --embed say, unless --min-confidence leaves them out.

    Raises `UserError` for options that do not go together.
    """

    def __init__(self, options: argparse.Namespace, photos: Mapping[str, ImageSource]) -> None:
        _check_options(options, photos)
        self._options = options
        self._shared_sidecars = shared_sidecars(photos, options.xmp, options.text)
        self._embedder: Embedder | None = None
        self._notes: Counter[str] = Counter()

    def files(self, photo: str, confidence: float | None) -> Iterator[tuple[str, Path]]:
        """If its caption is sure enough, a photo's sidecars and itself, with their options."""
        if self._is_sure_enough(confidence):
            yield from sidecar_paths(photo, self._options.xmp, self._options.text)
            if self._options.embed:
                yield "embed", Path(photo)

    def _is_sure_enough(self, confidence: float | None) -> bool:
        return (confidence or 0) >= (self._options.min_confidence or 0)

    def write(self, photo: str, caption: Caption) -> tuple[dict[str, str], list[str]]:
        """Write `files`, or say what would be written."""
        if not caption.words:
            return {}, []
        if not self._is_sure_enough(caption.confidence):
            self._notes["captions that are not sure enough for sidecars, texts and photos"] += 1
        files = self.files(photo, caption.confidence)
        if not self._options.dry_run:
            return write_each(files, partial(self._write, caption=caption))
        for option, path in files:
            keywords = () if option == "text" else _description(caption).keywords
            what = f"{path} would get {', '.join(map(repr, (caption.text, *keywords)))}"
            report(self._shared_sidecars.get(path, what))
        return {}, []

    def _write(self, option: str, path: Path, caption: Caption) -> None:
        """Write one of `files`."""
        overwrite, description = self._options.overwrite, _description(caption)
        if problem := self._shared_sidecars.get(path):
            raise UserError(problem)
        if option == "text":
            write_caption_text(path, caption.text, overwrite)
            return
        if option == "embed":
            self._embedder = self._embedder or Embedder()
            is_set = self._embedder.embed(str(path), description, overwrite)
        else:
            is_set = write_xmp(path, description, overwrite)
        if not is_set:
            self._notes["descriptions by others that stay; --overwrite replaces them"] += 1

    def close(self) -> None:
        """End exiftool, and say what was left out."""
        if self._embedder:
            self._embedder.close()
        for note, count in self._notes.items():
            if not self._options.quiet:
                report(f"{note}: {count:,}")


def _description(caption: Caption) -> Description:
    """Its keywords are English nouns; `Caption.doubt` is one, for photo managers to search by."""
    keywords = nouns((caption.original or caption).words)
    if caption.doubt:
        keywords = [*keywords, caption.doubt]
    text, language = on_a_line(caption.text), caption.language or ENGLISH
    return Description(text, keywords, language, caption.confidence)


def _check_options(options: argparse.Namespace, photos: Mapping[str, ImageSource]) -> None:
    beside = [f"--{name}" for name in PLACES if getattr(options, name)]
    are_files = all(isinstance(source, str) for source in photos.values())
    if beside and (not are_files or str(DEMO_PHOTO) in photos):
        raise UserError(f"{beside[0]} needs photo files of yours; -, --demo and shards have none")
    if not beside and (options.dry_run or options.min_confidence is not None):
        raise UserError("--dry-run and --min-confidence are for --xmp, --text and --embed")
    if options.embed and not options.dry_run and not shutil.which("exiftool"):
        raise UserError(
            "--embed needs exiftool; see https://exiftool.org or, on Debian, apt install "
            "libimage-exiftool-perl"
        )
    if options.min_confidence is not None and not 0 <= options.min_confidence <= 1:
        raise UserError(f"--min-confidence {options.min_confidence} is not between 0 and 1")
