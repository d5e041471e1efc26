"""Describes photos in themselves, by exiftool, and mends those that a kill has torn."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from ctypes import CDLL
from functools import partial
from pathlib import Path
from threading import Timer

from captioner import files
from captioner.data.inside_photos import (
    IPTC_CAPTION,
    IPTC_KEYWORDS,
    IptcTexts,
    iptc_of,
    read_inside,
)
from captioner.data.xmp import Description, Merged, XmpPacket, is_marked
from captioner.errors import UserError
from captioner.vision.images import Report, load_image, opened
from captioner.vision.raw import is_raw

_WHOLE = "_exiftool_tmp"
"""What exiftool adds to the name of a photo for the file that it copies over it."""

TEMPORARY = ".embedded"
"""Suffix of temporary files beside photos; by that of a WebP, exiftool does not know its format."""

_SECONDS = 60  # For a photo; one of a gigabyte has 17 minutes more.
_BYTES_A_SECOND = 1e6
_READY = "{ready}"  # What exiftool prints after each photo.
_WITH_IPTC = ("JPEG", "MPO", "TIFF")
_IPTC_HEADERS = {(1, 0), (1, 90), (2, 0)}  # Versions and character set, which exiftool adds.


def check_exiftool() -> None:
    """Raise `UserError` unless exiftool is there."""
    if not shutil.which("exiftool"):
        where = "https://exiftool.org or, on Debian, apt install libimage-exiftool-perl"
        raise UserError(f"--embed needs exiftool; see {where}")


class Embedder:
    """A process of exiftool, which describes one photo after the other; a new one if it died."""

    def __init__(self, decoding_seconds: float | None = None) -> None:
        self._decoding_seconds = decoding_seconds
        self._exiftool: subprocess.Popen[str] | None = None

    def embed(self, photo: Path, description: Description, is_dry: bool = False) -> Merged:
        """Write the description into a photo: all else stays as it is, pixels and date as well.

        is_dry: do all but replace the photo.
        """
        path = Path(os.path.realpath(photo))
        packets, _ = ([], []) if is_raw(path) else read_inside(path)
        if description.undo and not any(map(is_marked, packets)):
            return Merged()
        if is_raw(path):
            raise UserError(f"{photo} is a raw file, into which nothing is written: use --xmp")
        check_exiftool()
        with opened(path) as image:
            iptc = iptc_of(image) if image.format in _WITH_IPTC else None
        if len(packets) > 1:
            raise UserError(f"{photo} has XMP in several parts; --xmp writes beside it")
        packet = XmpPacket(next(iter(packets), None), f"the XMP of {photo}")
        before = packet.as_block()
        merged, changes = _merge(packet, iptc, description)
        is_unchanged = packet.as_block() == before or not (packets or not packet.is_empty)
        if is_unchanged and not changes:
            return merged._replace(is_there=True)
        if not packets:  # Nothing that exiftool alone sees is replaced.
            changes += ["-if", "not $XMP"]
        problem = f"cannot embed the caption in {photo}"
        block_path, written = (files.temporary_path(path.parent, TEMPORARY) for _ in range(2))
        with files.refuse_os_errors(problem):
            try:
                block_path.write_bytes(packet.as_block())
                # exiftool reads %f in a name as a code, and %d as the photo's folder.
                xmp = "-XMP:all=" if packet.is_empty else f"-XMP<=%d{block_path.name}"
                answer = self._run(path, *changes, xmp, "-o", f"%d{written.name}")
                reason = answer.removeprefix("Error: ").removesuffix(f" - {path}")
                if reason or not _is_whole(written, self._decoding_seconds):
                    raise UserError(f"{problem}: {reason or 'exiftool wrote no photo'}")
                if not is_dry:
                    _take_place(written, path)
            finally:
                block_path.unlink(missing_ok=True)
                written.unlink(missing_ok=True)
        return merged

    def close(self) -> None:
        """End the process."""
        if self._exiftool is not None:
            with suppress(OSError), self._exiftool:  # It may hold a command that nobody reads.
                self._exiftool.kill()
        self._exiftool = None

    def _run(self, photo: Path, *changes: str) -> str:
        """Change a photo; returns what exiftool prints, without warnings, or why it ended."""
        command = ["-q", "-q", *changes, f"{photo}"]
        if any("\n" in argument for argument in command):
            return "its name has a line break"
        exiftool = self._exiftool
        if exiftool is None or exiftool.poll() is not None:
            exiftool = self._exiftool = subprocess.Popen(
                ["exiftool", "-stay_open", "True", "-@", "-"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="surrogateescape",
                start_new_session=True,  # Ctrl-C is for captioner.
                preexec_fn=_end_with_parent(),
            )
        assert exiftool.stdin is not None
        assert exiftool.stdout is not None
        seconds = _SECONDS + photo.stat().st_size / _BYTES_A_SECOND
        limit = Timer(seconds, exiftool.kill)
        limit.start()
        with suppress(OSError):  # One that died prints nothing either.
            ends = ("-echo3", _READY, "-execute")
            print(*command, *ends, sep="\n", file=exiftool.stdin, flush=True)
        lines: list[str] = []
        for line in exiftool.stdout:
            if line == f"{_READY}\n":
                limit.cancel()
                return "".join(lines).strip()
            lines.append(line)
        is_late = limit.finished.is_set()
        limit.cancel()
        self.close()
        return f"exiftool took more than {seconds:.0f} seconds" if is_late else "exiftool died"


def _end_with_parent() -> Callable[[], object] | None:
    """On Linux, has exiftool killed with captioner: at the end of its input it waits for more."""
    if sys.platform != "linux":
        return None
    return partial(CDLL(None).prctl, 1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _merge(
    packet: XmpPacket, iptc: IptcTexts | None, description: Description
) -> tuple[Merged, list[str]]:
    """Merge the description into the packet; returns the changes of IPTC, as exiftool's options.

    What captioner wrote into IPTC and a person took out there is not written again.

    iptc: None in a format that has no place for it.
    """
    keywords = (iptc or {}).get(IPTC_KEYWORDS, [])
    own_keywords = packet.own_texts("subject")
    own_texts = packet.own_texts("description", description.by_person or description.undo)
    before = "".join(packet.own_texts("before_Caption-Abstract")[-1:])
    merged = packet.merge(description, keywords)
    if iptc is None:
        return merged, []
    caption = "\n".join(iptc.get(IPTC_CAPTION, []))
    if description.undo:
        own_words = {IPTC_KEYWORDS: own_keywords, IPTC_CAPTION: [] if before else own_texts}
        left = {name for name in iptc if {*iptc[name]}.difference(own_words.get(name, []))}
        changes = [f"-IPTC:Keywords-={word}" for word in own_keywords]
        if caption in own_texts:
            escaped = before.replace("\\", "\\\\").replace("\n", "\\n")
            changes.append(f"#[CSTR]-IPTC:Caption-Abstract={escaped}")
        return merged, changes if left - _IPTC_HEADERS else ["-IPTC:all="]
    changes = []
    if description.keywords_only or merged.is_taken_out:
        changes += ["-IPTC:Caption-Abstract="] if caption in own_texts else []
    elif description.overwrite or caption or not (iptc and own_texts):
        if caption != description.caption:
            changes.append(f"-IPTC:Caption-Abstract={description.caption}")
        if not caption:
            changes += ["-if", "not $IPTC:Caption-Abstract"]
        if caption and caption not in own_texts:
            packet.keep_copy("Caption-Abstract", caption)
            is_named = caption in (description.caption, *merged.replaced)
            merged = merged._replace(replaced=[*merged.replaced, *([] if is_named else [caption])])
    gone = {*own_keywords} - {*keywords} if iptc else set()
    if not iptc or {*own_keywords} != gone.union(merged.keywords):
        changes += [f"-IPTC:Keywords-={word}" for word in (*own_keywords, *merged.keywords)]
        changes += [f"-IPTC:Keywords+={word}" for word in merged.keywords if word not in gone]
    # Old texts are not recoded.
    return merged, changes if iptc or not changes else ["-CodedCharacterSet=UTF8", *changes]


def _take_place(written: Path, photo: Path) -> None:
    """Replace a photo by what was written beside it, which gets its attributes.

    Where those cannot be copied, or a photo has several links, the content is copied over it; a
    kill meanwhile leaves all of it in a file beside, for `mend_torn`.
    """
    is_alike = _copy_attributes(photo, written)
    written.chmod(0o600)  # The mode may forbid writing; `files.replace` copies it.
    whole = Path(f"{photo}{_WHOLE}")
    if is_alike and photo.stat().st_nlink == 1:
        files.replace(written, photo)
    elif os.path.lexists(whole):
        raise UserError(f"{whole} is in the way: remove what a killed exiftool left")
    else:
        photo.open("rb+").close()  # May it be written?
        files.replace(written, whole)
        _copy_over(whole, photo)


def _copy_attributes(photo: Path, written: Path) -> bool:
    """Copy times, owner and extended attributes; returns whether all are copied."""
    with suppress(OSError):
        shutil.copystat(photo, written)
        if sys.platform == "linux":  # Python does not see Finder's tags, nor Windows' streams.
            os.chown(written, photo.stat().st_uid, photo.stat().st_gid)
            names = os.listxattr(photo)
            return all(os.getxattr(photo, name) == os.getxattr(written, name) for name in names)
    return False


def _copy_over(whole: Path, photo: Path) -> None:
    """Copy a whole photo over another, which keeps its links and attributes; remove the first."""
    with files.refuse_os_errors(f"cannot write {photo}; {whole} is the whole photo"):
        status = whole.stat()
        shutil.copyfile(whole, photo)
        with photo.open("rb+") as file:
            os.fsync(file.fileno())
        with suppress(PermissionError):  # Of another's photo.
            os.utime(photo, ns=(status.st_atime_ns, status.st_mtime_ns))
        whole.unlink(missing_ok=True)


def mend_torn(photos: Iterable[str], report: Report, decoding_seconds: float | None = None) -> None:
    """Put back photos over which a killed run was copying, and report them.

    exiftool leaves the same where it is killed while it writes in place.
    """
    for photo in photos:
        path = Path(files.real_path(photo))
        whole = Path(f"{path}{_WHOLE}")
        try:
            if os.path.isfile(whole) and _is_torn(path, whole, decoding_seconds):
                _copy_over(whole, path)
                report(f"{photo} was torn by a run that was killed; it is whole again, by {whole}")
        except UserError as error:
            report(str(error))


def _is_torn(photo: Path, whole: Path, decoding_seconds: float | None) -> bool:
    """Whether only a beginning of a whole photo has been copied over another."""
    with files.refuse_os_errors(f"cannot compare {photo} with {whole}"):
        content, whole_content = photo.read_bytes(), whole.read_bytes()
    # A torn JPEG can be decoded; new XMP stands before its pixels.
    beginning = whole_content[: whole_content.find(b"<?xpacket end")]
    is_copied = whole_content.startswith(content) or content.startswith(beginning)
    is_torn = is_copied or not _is_whole(photo, decoding_seconds)
    return is_torn and _is_whole(whole, decoding_seconds)


def _is_whole(photo: Path, decoding_seconds: float | None) -> bool:
    try:  # JPEG is decoded to few pixels, but wholly.
        load_image(photo, sufficient_side=1, decoding_seconds=decoding_seconds)
    except UserError:
        return False
    return True
