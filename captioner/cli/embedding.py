"""Writes captions into photos, as XMP and IPTC, through exiftool (https://exiftool.org)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from base64 import b64decode
from pathlib import Path

from captioner.data.xmp import Description, XmpPacket
from captioner.errors import UserError
from captioner.files import refuse_os_errors

_WITH_IPTC = ("JPEG", "TIFF")
"""Other formats have no place for IPTC that programs read."""


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
