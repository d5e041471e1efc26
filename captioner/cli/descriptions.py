"""Describes photos: in XMP sidecars and texts beside them, and in themselves by exiftool."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from captioner import files
from captioner.caption.caption import Caption
from captioner.cli.program import on_a_line, report
from captioner.data.xmp import Description, XmpPacket
from captioner.errors import UserError
from captioner.model_folders import DEMO_PHOTO
from captioner.text.languages import ENGLISH, is_noun
from captioner.vision.images import ImageSource


class Descriptions:
    """Writes captions where --xmp, --text and --embed say, if sure enough for --min-confidence."""

    def __init__(self, options: argparse.Namespace, photos: Mapping[str, ImageSource]) -> None:
        are_files = all(isinstance(source, str) for source in photos.values())
        if not are_files or str(DEMO_PHOTO) in photos:
            raise UserError("--xmp, --text and --embed need photo files, not -, --demo or shards")
        if options.embed and not options.dry_run and not shutil.which("exiftool"):
            where = "https://exiftool.org or, on Debian, apt install libimage-exiftool-perl"
            raise UserError(f"--embed needs exiftool; see {where}")
        self._options, self._least_confidence = options, options.min_confidence or 0
        if not 0 <= self._least_confidence <= 1:
            raise UserError(f"--min-confidence {self._least_confidence} is not between 0 and 1")
        # As they are now: the sidecar of one photo may decide the place of another.
        self._places = {photo: [*self._beside(photo)] for photo in photos}
        self._owners: dict[Path, dict[str, str]] = defaultdict(dict)
        """The photos beside which each file would be."""
        for photo, places in self._places.items():
            for _, path in places:
                self._owners[path].setdefault(files.real_path(photo), photo)
        self._embedder: Embedder | None = None
        self._notes: Counter[str] = Counter()

    def files(self, photo: str, confidence: float | None) -> Iterator[tuple[str, Path]]:
        """If its caption is sure enough, a photo's sidecars and itself, with their options."""
        if (confidence or 0) >= self._least_confidence:
            yield from self._places[photo]
            if self._options.embed:
                yield "embed", Path(photo)

    def write(self, photo: str, caption: Caption) -> tuple[dict[str, str], list[str]]:
        """Write `files`, or say what would be written; returns those written, and problems."""
        if not caption.words:
            return {}, []
        if (caption.confidence or 0) < self._least_confidence:
            self._notes["captions that are not sure enough for sidecars, texts and photos"] += 1
        # Keywords are English nouns; doubt is one, for photo managers to search by.
        words = dict.fromkeys((caption.original or caption).words)
        keywords = [word for word in words if is_noun(word)]
        keywords += [caption.doubt] if caption.doubt else []
        text, language = on_a_line(caption.text), caption.language or ENGLISH
        description = Description(text, keywords, language, caption.confidence)
        write = partial(self._write, description=description)
        written, problems = files.write_each(self.files(photo, caption.confidence), write)
        return {} if self._options.dry_run else written, problems

    def _beside(self, photo: str) -> Iterator[tuple[str, Path]]:
        """The files beside a photo, with their options.

        Lightroom reads `photo.xmp`, the name in Adobe's XMP Specification Part 3, which is written
        unless there is a `photo.jpg.xmp` alone; digiKam and darktable read `photo.jpg.xmp`.
        """
        path, xmp = Path(photo), self._options.xmp
        with_suffix, without = path.with_name(f"{path.name}.xmp"), path.with_suffix(".xmp")
        if xmp == "lightroom" and (without.exists() or not with_suffix.exists()):
            yield "xmp", without
        elif xmp:
            yield "xmp", with_suffix
        if self._options.text:
            yield "text", path.with_suffix(".txt")

    def _write(self, option: str, path: Path, description: Description) -> None:
        """Write one of `files`."""
        overwrite = self._options.overwrite
        owners = self._owners[path].values()
        if len(owners) > 1:
            hint = ", or give --xmp-for digikam" if option == "xmp" else ""
            of = " and of ".join(owners)
            raise UserError(f"{path} would be of {of}, and is not written; rename one{hint}")
        if self._options.dry_run:
            keywords = () if option == "text" else description.keywords
            report(f"{path} would get {', '.join(map(repr, (description.caption, *keywords)))}")
        elif option == "text":
            line = f"{description.caption}\n"
            if path.exists() and not overwrite and files.read_text(path) != line:
                raise UserError(f"{path} holds another text; --overwrite replaces it")
            files.write_text(path, line)
        else:
            write: Callable[[Path, Description, bool], bool] = write_xmp
            if option == "embed":
                self._embedder = self._embedder or Embedder()
                write = self._embedder.embed
            if not write(path, description, overwrite):
                self._notes["descriptions by others that stay; --overwrite replaces them"] += 1

    def close(self) -> None:
        """End exiftool, and say what was left out."""
        if self._embedder:
            self._embedder.close()
        for note, count in self._notes.items():
            if not self._options.quiet:
                report(f"{note}: {count:,}")


def write_xmp(path: Path, description: Description, overwrite: bool = False) -> bool:
    """Write the description into an XMP file, merged with what is there; see `Embedder.embed`."""
    with files.refuse_os_errors(f"cannot read {path}"):
        content = path.read_bytes() if os.path.lexists(path) else None
    packet = XmpPacket(content, str(path))
    is_set = packet.merge(description, overwrite)
    files.write_bytes(path, packet.as_file())
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

    def embed(self, photo: Path, description: Description, overwrite: bool = False) -> bool:
        """Write the description into a photo: all else stays as it is, pixels and date as well.

        Returns whether it was set: a description by others stays unless `overwrite`.
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
            raise UserError(f"{photo} has XMP in several parts; --xmp writes beside it")
        keywords = tags.get("IPTC:Keywords", [])
        keywords = [*map(str, keywords if isinstance(keywords, list) else [keywords])]
        packet = XmpPacket(block, f"the XMP of {photo}")
        old_keywords = packet.own_texts("subject")
        iptc_caption = str(tags.get("IPTC:Caption-Abstract", "")).strip()
        is_set = packet.merge(description, overwrite, iptc_caption, keywords)
        arguments = []
        if tags.get("File:FileType") in ("JPEG", "TIFF"):  # Others have no place for IPTC.
            if not any(name.startswith("IPTC:") for name in tags):  # Old texts are not recoded.
                arguments.append("-CodedCharacterSet=UTF8")
            if is_set:
                arguments.append(f"-IPTC:Caption-Abstract={description.caption}")
            new_keywords = packet.own_texts("subject")
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
        command = ("-q", "-q", *arguments, "-echo3", "{ready}", "-execute", "")
        with files.refuse_os_errors("cannot write to exiftool"):
            self._exiftool.stdin.write("\n".join(command))
            self._exiftool.stdin.flush()
        answer = ""
        for line in self._exiftool.stdout:
            if line == "{ready}\n":
                return answer.strip()
            answer += line
        raise UserError("exiftool has ended")
