"""Describes photos: in XMP sidecars and texts beside them, and in themselves by exiftool."""

import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from captioner import files
from captioner.caption.caption import Caption
from captioner.cli.caption import formatted_caption
from captioner.cli.output_options import OutputOptions
from captioner.cli.program import on_a_line, report
from captioner.data.xmp import Description, XmpPacket, words_of_person
from captioner.errors import UserError, counted
from captioner.model_folders import DEMO_PHOTO
from captioner.text.languages import ENGLISH, is_noun
from captioner.vision.images import ImageSource

SHARED = "the file beside it would be of another photo, too, and was not written"
"""A problem of each such photo in records; `Descriptions` reports it once for all."""


class Descriptions:
    """Writes captions as --xmp, --text and --embed say; --min-confidence leaves some out."""

    def __init__(self, options: OutputOptions, photos: Mapping[str, ImageSource]) -> None:
        are_files = all(isinstance(source, str) for source in photos.values())
        if not are_files or str(DEMO_PHOTO) in photos:
            raise UserError("--xmp, --text and --embed need photo files, not -, --demo or shards")
        if options.embed and not shutil.which("exiftool"):
            where = "https://exiftool.org or, on Debian, apt install libimage-exiftool-perl"
            raise UserError(f"--embed needs exiftool; see {where}")
        self._options = options
        # Found before any is written: a new sidecar may change where another photo's goes.
        self._places = {photo: [*self._beside(photo)] for photo in photos}
        self._owners: dict[Path, dict[str, str]] = defaultdict(dict)
        """The photos beside which each file would be."""
        for photo, places in self._places.items():
            for _, path in places:
                self._owners[path].setdefault(files.real_path(photo), photo)
        shared = [path for path, owners in self._owners.items() if len(owners) > 1]
        if shared:
            hint = ", or give --xmp-for digikam" if options.xmp == "lightroom" else ""
            of = " and of ".join(self._owners[shared[0]].values())
            count = f"{counted(len(shared), 'file')} not written"
            example = f"such as {shared[0]} of {of}"
            report(f"{count}: it would be of several photos, {example}; rename one{hint}")
        if not options.dry_run:
            files.remove_leftovers(self._owners)
        self._embedder: Embedder | None = None
        self._notes: Counter[str] = Counter()
        self._kept = ""  # The description by a person of the photo that is written.

    def files(self, photo: str, confidence: float | None) -> Iterator[tuple[str, Path]]:
        """A photo's sidecar, text and itself, with their options, if its caption is sure enough."""
        if (confidence or 0) >= self._options.min_confidence:
            if self._options.embed:  # First: exiftool may find words of a person that we do not.
                yield "embed", Path(photo)
            yield from self._places[photo]

    def has_text(self, photo: str) -> bool:
        """Whether there is a text beside a photo."""
        return any(option == "text" and holds_text(path) for option, path in self._places[photo])

    def write(self, photo: str, caption: Caption) -> tuple[dict[str, str], list[str]]:
        """Write `files`, or say what would be written; returns those written, and problems.

        A description by a person stays: sidecars and the photo then receive the keywords alone.
        """
        if not caption.words:
            return {}, []
        if (caption.confidence or 0) < self._options.min_confidence:
            self._notes["captions that are not sure enough for sidecars, texts and photos"] += 1
        # Keywords are English nouns; doubt is one, for photo managers to search by.
        words = dict.fromkeys((caption.original or caption).words)
        keywords = [word for word in words if is_noun(word)]
        keywords += [caption.doubt] if caption.doubt else []
        text = on_a_line(caption.text)
        description = Description(text, keywords, caption.language or ENGLISH, caption.confidence)
        places = [*self.files(photo, caption.confidence)]
        problems = []
        kept = ""
        if any(option != "text" for option, _ in places) and not self._options.overwrite:
            try:
                kept = words_of_person(Path(photo))
            except UserError as error:  # The unreadable part may be a person's words.
                problems.append(str(error))
                places = [place for place in places if place[0] == "text"]
        self._kept = "" if kept == text else kept
        if self._kept and not keywords:  # A new sidecar would be empty.
            places = [place for place in places if place[0] != "xmp" or os.path.lexists(place[1])]
        line = text
        if form := self._options.format:
            line = formatted_caption(form, photo, caption).removesuffix("\n")
        write = partial(self._write, description=description, line=line)
        written, more = files.write_each(places, write)
        if self._kept:
            self._notes["photos that keep their description by a person"] += 1
            more.append(f"{photo} keeps its description {self._kept!r}; --overwrite replaces it")
        problems = [*dict.fromkeys(problems + more)]
        return {} if self._options.dry_run else written, problems

    def _beside(self, photo: str) -> Iterator[tuple[str, Path]]:
        """The files beside a photo, with their options.

        Lightroom reads `photo.xmp`, the name in Adobe's XMP Specification Part 3, which is written
        unless there is a `photo.jpg.xmp` alone; digiKam and darktable read `photo.jpg.xmp`.
        """
        path = Path(photo)
        xmp = self._options.xmp
        with_suffix = path.with_name(f"{path.name}.xmp")
        without = path.with_suffix(".xmp")
        if xmp == "lightroom" and (os.path.exists(without) or not os.path.exists(with_suffix)):
            yield "xmp", without
        elif xmp:
            yield "xmp", with_suffix
        if self._options.text:
            yield "text", path.with_suffix(".txt")

    def _write(self, option: str, path: Path, description: Description, line: str) -> None:
        """Write one of `files`; a dry run announces it instead."""
        options = self._options
        if len(self._owners[path]) > 1:
            raise UserError(SHARED)
        if option == "embed":
            self._embedder = self._embedder or Embedder()
            kept = self._embedder.embed(
                path, description, bool(self._kept), options.overwrite, options.dry_run
            )
            self._kept = self._kept or kept
        else:
            if option == "text":
                content = f"{line}\n".encode("utf-8", "backslashreplace")
                is_kept = not options.overwrite and holds_text(path)
                if is_kept and files.read_text(path) != f"{line}\n":
                    raise UserError(f"{path} holds another text; --overwrite replaces it")
            else:
                content = merged_xmp(path, description, is_described=bool(self._kept))
            if options.dry_run:
                _check_replaceable(path)
            else:
                files.write_bytes(path, content)
        if options.dry_run:
            words = [] if self._kept else [description.caption]
            texts = [line] if option == "text" else [*words, *description.keywords]
            report(f"{path} would get {', '.join(map(repr, texts)) or 'nothing'}")

    def close(self) -> None:
        """End exiftool, and report what was left out."""
        if self._embedder:
            self._embedder.close()
        for note, count in self._notes.items():
            if not self._options.quiet:
                report(f"{note}: {count:,}")


def holds_text(path: Path) -> bool:
    """Whether there is a text beside a photo: an empty one is none."""
    return os.path.lexists(path) and bool(files.read_text(path).strip())


def merged_xmp(path: Path, description: Description, is_described: bool = False) -> bytes:
    """The content of an XMP file with the description merged in; see `XmpPacket.merge`."""
    with files.refuse_os_errors(f"cannot read {path}"):
        content = path.read_bytes() if os.path.lexists(path) else None
    packet = XmpPacket(content, str(path))
    packet.merge(description, is_described)
    return packet.as_file()


def _check_replaceable(path: Path) -> None:
    with files.refuse_os_errors(f"cannot write {path}"), suppress(FileNotFoundError):
        if os.path.isdir(path) or not os.stat(path):  # Its name may be too long.
            raise UserError(f"cannot write {path}: it is a folder")
    files.check_writable(f"writing {path}", Path(os.path.realpath(path)).parent)


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

    def embed(
        self,
        photo: Path,
        description: Description,
        is_described: bool = False,
        overwrite: bool = False,
        is_dry: bool = False,
    ) -> str:
        """Write the description into a photo: all else stays as it is, pixels and date as well.

        is_described: by a person, elsewhere: only keywords are written. So they are, unless
            `overwrite`, if a person described the photo inside; returns that description, or "".
        is_dry: do all but replace the photo.
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
        own_texts = packet.own_texts("description")
        iptc_caption = str(tags.get("IPTC:Caption-Abstract", "")).strip()
        words = "" if overwrite else words_of_person(packet, iptc_caption)
        words = "" if words == description.caption else words
        is_described = is_described or bool(words)
        packet.merge(description, is_described, keywords)
        arguments = []
        if tags.get("File:FileType") in ("JPEG", "TIFF"):  # Others have no place for IPTC.
            if not any(name.startswith("IPTC:") for name in tags):  # Old texts are not recoded.
                arguments.append("-CodedCharacterSet=UTF8")
            if not is_described:
                arguments.append(f"-IPTC:Caption-Abstract={description.caption}")
            elif iptc_caption in own_texts:
                arguments.append("-IPTC:Caption-Abstract=")
            new_keywords = packet.own_texts("subject")
            arguments += [f"-IPTC:Keywords-={word}" for word in (*old_keywords, *new_keywords)]
            arguments += [f"-IPTC:Keywords+={word}" for word in new_keywords]
        with tempfile.TemporaryDirectory() as folder:
            block_path = Path(folder, "block.xmp")
            block_path.write_bytes(packet.as_block())
            target = ["-overwrite_original"]
            if is_dry:
                _check_replaceable(photo)
                target = ["-o", os.path.join(folder, f"photo{photo.suffix}")]
            arguments += [f"-XMP<={block_path}", "-P", *target, path]
            if problem := self._run(*arguments):
                reason = problem.removeprefix("Error: ").removesuffix(f" - {path}")
                raise UserError(f"cannot embed the caption in {photo}: {reason}")
        return words

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
