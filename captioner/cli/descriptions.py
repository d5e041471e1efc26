"""Describes photos: in XMP sidecars and texts beside them, and in themselves by exiftool.

Adobe, *XMP Specification Part 3* for the names of sidecars; exiftool: https://exiftool.org.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from captioner.caption.caption import Caption
from captioner.cli.program import on_a_line, report
from captioner.data.xmp import Description, XmpPacket
from captioner.demo import DEMO_PHOTO
from captioner.errors import UserError
from captioner.files import (
    read_text,
    real_path,
    refuse_os_errors,
    write_bytes,
    write_each,
    write_text,
)
from captioner.text.languages import ENGLISH, nouns
from captioner.vision.images import ImageSource

PLACES = ("xmp", "text", "embed")
"""The options that name where."""

_WITH_IPTC = ("JPEG", "TIFF")
"""Other formats have no place for IPTC that programs read."""


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


def sidecar_paths(photo: str, xmp: str | None, text: bool) -> Iterator[tuple[str, Path]]:
    """The files beside a photo, with their options.

    xmp: the program that reads them and sets the name: "lightroom" (`photo.xmp`, unless there is a
        `photo.jpg.xmp` alone), "digikam" or "darktable" (`photo.jpg.xmp`). text: write `photo.txt`.
    """
    path = Path(photo)
    with_suffix, without = path.with_name(f"{path.name}.xmp"), path.with_suffix(".xmp")
    if xmp == "lightroom" and (without.exists() or not with_suffix.exists()):
        yield "xmp", without
    elif xmp:
        yield "xmp", with_suffix
    if text:
        yield "text", path.with_suffix(".txt")


def shared_sidecars(photos: Iterable[str], xmp: str | None, text: bool) -> dict[Path, str]:
    """The files that would be beside several photos at once, with a sentence about each."""
    owners: dict[Path, dict[str, str]] = defaultdict(dict)
    for photo in photos:
        for _, path in sidecar_paths(photo, xmp, text):
            owners[path].setdefault(real_path(photo), photo)
    return {
        path: f"{path} would be of {' and of '.join(of.values())}, and is not written; rename one"
        + (", or give --xmp-for digikam" if path.suffix == ".xmp" else "")
        for path, of in owners.items()
        if len(of) > 1
    }


def write_caption_text(path: Path, caption: str, overwrite: bool = False) -> None:
    """Write the caption as a line of text."""
    line = f"{on_a_line(caption)}\n"
    if path.exists() and not overwrite and read_text(path) != line:
        raise UserError(f"{path} holds another text; --overwrite replaces it")
    write_text(path, line)


def write_xmp(path: Path, description: Description, overwrite: bool = False) -> bool:
    """Write the description into an XMP file, merged with what is there.

    overwrite: replace a description that captioner did not write.
    Returns whether the description was set; False if one by somebody else stays.
    Raises `UserError`, and leaves the file alone, if it is no XMP.
    """
    with refuse_os_errors(f"cannot read {path}"):
        content = path.read_bytes() if os.path.lexists(path) else None
    packet = XmpPacket(content, str(path))
    is_set = packet.merge(description, overwrite)
    write_bytes(path, packet.as_file())
    return is_set


class Embedder:
    """One process of exiftool, which writes into one photo after the other."""

    def __init__(self) -> None:
        self._exiftool = subprocess.Popen(
            ["exiftool", "-stay_open", "True", "-@", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,  # Ctrl-C lets it finish its photo.
        )

    def embed(self, photo: str, description: Description, overwrite: bool = False) -> bool:
        """Write the description into a photo: all else stays as it is, pixels and date as well.

        overwrite: replace a description that captioner did not write.
        Returns whether the description was set; False if one by somebody else stays.
        Raises `UserError`, and leaves the photo alone, if exiftool cannot write it.
        """
        path = os.path.realpath(photo)
        answer = self._run("-j", "-b", "-G0", "-FileType", "-XMP", "-IPTC:all", path)
        try:
            (tags,) = json.loads(answer)
        except ValueError:
            raise UserError(f"cannot read the metadata of {photo}: {answer}") from None
        block = tags.get("XMP:XMP")
        if block is not None:
            is_coded = block.startswith("base64:")
            block = b64decode(block[len("base64:") :]) if is_coded else block.encode()
        if b"HasExtendedXMP" in (block or b""):
            raise UserError(
                f"{photo} has XMP in several parts, as photos with depth do, and was left alone; "
                "--xmp writes beside it"
            )
        keywords = tags.get("IPTC:Keywords", [])
        keywords = list(map(str, keywords if isinstance(keywords, list) else [keywords]))
        packet = XmpPacket(block, f"the XMP of {photo}")
        old_keywords = packet.own_keywords
        iptc_caption = str(tags.get("IPTC:Caption-Abstract", "")).strip()
        is_set = packet.merge(description, overwrite, iptc_caption, keywords)
        arguments = []
        if tags.get("File:FileType") in _WITH_IPTC:
            if not any(name.startswith("IPTC:") for name in tags):  # Old texts are not recoded.
                arguments.append("-CodedCharacterSet=UTF8")
            if is_set:
                arguments.append(f"-IPTC:Caption-Abstract={description.caption}")
            new_keywords = packet.own_keywords
            arguments += [f"-IPTC:Keywords-={word}" for word in (*old_keywords, *new_keywords)]
            arguments += [f"-IPTC:Keywords+={word}" for word in new_keywords]
        with tempfile.TemporaryDirectory() as folder:
            block_path = Path(folder, "block.xmp")
            block_path.write_bytes(packet.as_block())
            arguments += [f"-XMP<={block_path}", "-P", "-overwrite_original", path]
            if problem := self._run(*arguments):
                raise UserError(f"cannot embed the caption in {photo}: {problem}")
        return is_set

    def close(self) -> None:
        """End the process."""
        self._exiftool.communicate("-stay_open\nFalse\n")

    def _run(self, *arguments: str) -> str:
        """Run a command; returns what it prints, without warnings."""
        assert self._exiftool.stdin is not None
        assert self._exiftool.stdout is not None
        if any("\n" in argument for argument in arguments):
            return "its name has a line break"
        with refuse_os_errors("cannot write to exiftool"):
            command = ("-q", "-q", *arguments, "-echo3", "{ready}", "-execute", "")
            self._exiftool.stdin.write("\n".join(command))
            self._exiftool.stdin.flush()
        answer = ""
        for line in self._exiftool.stdout:
            if line == "{ready}\n":
                return answer.strip()
            answer += line
        raise UserError("exiftool has ended")
