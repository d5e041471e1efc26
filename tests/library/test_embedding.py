"""Words in photos, by exiftool."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGINT
from typing import Any

import numpy as np
import pytest
from PIL import Image
from samples import Patch, exiftool, xmp_packet, xmp_texts

from captioner.errors import UserError
from captioner.library import Library, Places, Words, Written
from captioner.vision.digest import photo_digest

pytestmark = pytest.mark.exiftool

DOG = Words('ein Hund & eine Bö für $5 \\ @ 9 "Uhr"', ["dog", "Bö"], "de", 0.42)
CAT = Words("a cat", ["cat"])
EMBED = Places(embed=True)


def save_noise(path: Path) -> Path:
    if path.suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x010F] = "Camera"
    Image.fromarray(pixels).save(path, exif=exif)
    os.utime(path, (1e9, 1e9))
    return path


def edit(photo: Path, *options: str) -> None:
    command = ["exiftool", "-q", "-q", "-overwrite_original", *options, photo]
    subprocess.run(command, check=True)


def packet_in(photo: Path) -> bytes:
    with Image.open(photo) as image:
        return bytes(image.info["xmp"])


def pixels(path: Path) -> Any:
    with Image.open(path) as photo:
        return np.asarray(photo)


def overwrite(photo: Path, words: Words) -> Written:
    library = Library(EMBED, overwrite=True)
    return library.write(str(photo), words)


XMP = "XMP:Rating=4 XMP-dc:Description=Mine XMP-dc:Description-de=Meins XMP-dc:Subject=Rex"
EDITS = {
    "": "",
    "XMP": f"{XMP} XMP-dc:Description-en=Mine XMP-exif:UserComment=Comment",
    "IPTC": "IPTC:Caption-Abstract=B\u00f6\\n IPTC:City=Ulm IPTC:Keywords=Rex",
}
MOVED = ("IFD0:StripOffsets", "QuickTime:MediaData")  # Where pixels stand in the file.
LEFT_OUT = ("SourceFile", "System", "File", "ExifTool", "RIFF", *MOVED)


def dump(path: Path) -> dict[str, Any]:
    """What exiftool reads, but for what any change of a file changes."""
    found = exiftool("-a", "-all", path)
    return {name: value for name, value in found.items() if not name.startswith(LEFT_OUT)}


@pytest.mark.parametrize("edited", EDITS)
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp", "heic", "jp2"])
def test_what_is_written_is_taken_out_again(suffix: str, edited: str, tmp_path: Path) -> None:
    photo, has_iptc = save_noise(tmp_path / f"#$@.{suffix}"), suffix in ("jpg", "tif")
    if not has_iptc and edited == "IPTC":
        pytest.skip("captioner writes no IPTC there")
    edit(photo, *(f"-{tag}" for tag in EDITS[edited].split())) if edited else None
    before, shown, digest = dump(photo), pixels(photo), photo_digest(str(photo))
    os.utime(photo, (1e9, 1e9))
    for words, changes in ((DOG, 1), (CAT, 1), (DOG, 1), (DOG, 0)):  # What captioner wrote goes.
        done = overwrite(photo, words)
        assert (done.files, len(done.words), done.problems) == ({"embed": str(photo)}, changes, [])
        assert (photo_digest(str(photo)), photo.stat().st_mtime) == (digest, 1e9)
    found = exiftool(photo)
    assert "XMP-dc:Description-de" not in found
    texts = ["XMP-dc:Description", "XMP-iptcCore:AltTextAccessibility"]
    texts += ["IPTC:Caption-Abstract"] if has_iptc else []
    assert {found[name] for name in texts} == {DOG.caption}
    assert {*DOG.keywords} <= {*found["XMP-dc:Subject"]}
    assert ("IPTC:Keywords" in found) == has_iptc
    for gone in ([DOG.caption, *DOG.keywords], []):
        assert Library().undo(str(photo)).words.get("embed", []) == gone
        assert dump(photo) == before
    assert (pixels(photo) == shown).all()
    assert list(tmp_path.iterdir()) == [photo]


def test_words_by_somebody_stay(tmp_path: Path, library: Library) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    words = {"Caption-Abstract": "Unser Rex", "City": "Zürich", "Keywords": "dog"}
    edit(photo, "-XMP-xmp:Rating=4", *(f"-IPTC:{name}={word}" for name, word in words.items()))
    for description in (DOG, CAT):  # The keyword "dog" is the user's.
        assert library.write(str(photo), description).kept == "Unser Rex"
    found = exiftool(photo)
    kept = {"IPTC:Caption-Abstract": "Unser Rex", "IPTC:City": "Zürich", "XMP-xmp:Rating": 4}
    kept |= {"IPTC:Keywords": ["dog", "cat"], "XMP-dc:Subject": "cat"}
    assert found.items() >= kept.items()
    assert "XMP-dc:Description" not in found
    for replaced in (["Unser Rex"], []):
        assert overwrite(photo, CAT).replaced == replaced
        assert exiftool(photo)["IPTC:Caption-Abstract"] == "a cat"
        name = "captioner:before_Caption-Abstract"
        assert xmp_texts(packet_in(photo), name) == ["Unser Rex"]


def test_words_removed_by_a_person_from_iptc_do_not_come_back(
    tmp_path: Path, library: Library
) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    library.write(str(photo), Words("a dog and a cat", ["dog", "cat"]))
    edit(photo, "-IPTC:Caption-Abstract=", "-IPTC:Keywords-=dog")
    for keywords in (["dog", "boat"], ["boat", "dog"]):
        library.write(str(photo), Words("a dog in a boat", keywords))
        found = exiftool(photo)
        assert (found["IPTC:Keywords"], "IPTC:Caption-Abstract" in found) == ("boat", False)
    assert overwrite(photo, CAT).replaced == []
    assert exiftool(photo)["IPTC:Caption-Abstract"] == "a cat"


LONG = "Seite eins des Bücherbriefes. " * 100


@pytest.mark.parametrize(
    ("edits", "text"),
    [([], f"祖母, {LONG}"), (["-IPTC:City=Zürich", "-CodedCharacterSet="], f"„{LONG}”")],
)
def test_a_text_too_long_for_iptc_is_cut_at_a_letter_and_stays_captioners(
    edits: list[str], text: str, tmp_path: Path, library: Library
) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    edit(photo, *edits) if edits else None
    before = dump(photo)
    words = Words(text.strip(), ["ü" * 40, "dog"], by_person=True)
    cut = f"IPTC lacks room, or letters as it is not in UTF-8, for the keywords {'ü' * 40}"
    assert library.write(str(photo), words).notes == [
        f"{photo}: IPTC has room for the beginning of the caption alone", f"{photo}: {cut}"
    ]  # fmt: skip
    found = exiftool(photo)
    assert found["XMP-dc:Description"] == words.caption
    assert words.caption.startswith(found["IPTC:Caption-Abstract"])
    assert 1990 <= len(found["IPTC:Caption-Abstract"].encode()) <= 2000
    assert found["IPTC:Keywords"] == ["ü" * 32, "dog"]
    assert library.write(str(photo), words) == Written({"embed": str(photo)})
    assert [each.by for each in Library().said(str(photo))] == ["table"] * 2  # By Pillow.
    assert library.write(str(photo), Words("kurz", ["ü" * 40], by_person=True)).words
    assert exiftool(photo)["IPTC:Caption-Abstract"] == "kurz"
    library.write(str(photo), words)
    library.undo(str(photo))
    assert dump(photo) == before


def test_iptc_that_is_not_in_utf8_gets_no_letters_that_it_lacks(
    tmp_path: Path, library: Library
) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    edit(photo, "-IPTC:City=Zürich", "-IPTC:Keywords=Rex")
    before = dump(photo)
    words = Words("祖母 am See", ["Bö", "祖母"])
    assert library.write(str(photo), words).notes == [
        f"{photo}: IPTC is not in UTF-8 there, lacks letters of the caption, and gets none",
        f"{photo}: IPTC lacks room, or letters as it is not in UTF-8, for the keywords 祖母",
    ]
    assert library.write(str(photo), words) == Written({"embed": str(photo)})
    found = exiftool(photo)
    assert found["XMP-dc:Description"] == words.caption
    assert found["XMP-dc:Subject"] == words.keywords
    assert found["IPTC:City"] == "Zürich"
    assert found["IPTC:Keywords"] == ["Rex", "Bö"]
    assert "IPTC:Caption-Abstract" not in found
    library.write(str(photo), Words("Bö am See"))
    assert exiftool(photo)["IPTC:Caption-Abstract"] == "Bö am See"
    library.undo(str(photo))
    assert dump(photo) == before


def test_a_photo_that_cannot_be_written_is_left_alone(tmp_path: Path, library: Library) -> None:
    names = ("a.bmp", "deep.jpg", "linked.jpg")
    bmp, deep, linked = (save_noise(tmp_path / name) for name in names)
    raw = tmp_path / "a.dng"
    raw.write_bytes(b"damaged")
    edit(deep, f"-XMP-dc:Rights={'x' * 100_000}")
    os.link(linked, tmp_path / "link.jpg")
    for path, reason in (
        (bmp, "Writing of BMP files"),
        (deep, "is in several parts"),
        (linked, "several hard links: give it one, or use --xmp"),
        (raw, "is a raw file, into which nothing is written: use --xmp"),
    ):
        before = path.read_bytes()
        (problem,) = library.write(str(path), DOG).problems
        assert reason in problem
        assert str(path) in problem
        assert path.read_bytes() == before
    assert library.undo(str(deep)) == Written()
    assert not list(tmp_path.glob(".captioner*"))
    assert library.write(str(save_noise(tmp_path / "b\n.jpg")), DOG).words


def test_exiftool_is_asked_for(tmp_path: Path, library: Library, monkeypatch: Patch) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    library.write(str(photo), CAT)
    monkeypatch.setenv("PATH", "")
    (problem,) = Library().undo(str(photo)).problems
    assert problem.startswith(f"reading the words in {photo} needs exiftool; see https://exif")
    with pytest.raises(UserError, match="--embed needs exiftool; see https://exiftool"):
        Library(EMBED)


def test_a_photo_keeps_attributes_and_times(tmp_path: Path, library: Library) -> None:
    folder = tmp_path / "100%f %d"
    folder.mkdir()
    attributed, read_only = (save_noise(folder / f"{name}.jpg") for name in "ab")
    link = folder / "link.jpg"
    link.symlink_to(attributed)
    os.setxattr(attributed, "user.xdg.tags", b"Rex")
    read_only.chmod(0o444)
    for photo in (link, read_only):
        before = photo.stat()
        library.write(str(photo), DOG)
        after = photo.stat()
        assert xmp_texts(packet_in(photo), "dc:description") == [DOG.caption]
        assert (after.st_mtime_ns, after.st_mode) == (before.st_mtime_ns, before.st_mode)
    assert os.getxattr(attributed, "user.xdg.tags") == b"Rex"
    assert len(list(folder.iterdir())) == 3
    assert link.is_symlink()


STUB = """#!/bin/sh
if [ ! -e "{folder}/stumbled" ]; then touch "{folder}/stumbled"; kill -{signal} $$; fi
PATH="{path}" exec exiftool "$@"
"""


@pytest.mark.parametrize(
    ("signal", "seconds", "reason"), [("KILL", 60, "died"), ("STOP", 4, "took more than 4 seconds")]
)
def test_an_exiftool_that_dies_or_stops_costs_its_photo_alone(
    signal: str, seconds: int, reason: str, tmp_path: Path, library: Library, monkeypatch: Patch
) -> None:
    photos = [save_noise(tmp_path / f"{name}.jpg") for name in "ab"]
    stub = tmp_path / "bin/exiftool"
    stub.parent.mkdir()
    path = os.environ["PATH"]
    stub.write_text(STUB.format(folder=tmp_path, signal=signal, path=path))
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}{os.pathsep}{path}")
    monkeypatch.setattr("captioner.library.exiftool._SECONDS", seconds)
    first, second, again = (library.write(str(photo), CAT) for photo in (*photos, photos[0]))
    assert first.problems == [f"cannot read {photos[0]}: exiftool {reason}"]
    assert (second.problems, again.problems) == ([], [])


ENDED = """
import os, sys
from captioner.library import Library, Places, Words
from captioner.library import exiftool

class Stopped(exiftool.Timer):
    def start(self):
        number = self.function.__self__.pid
        os.kill(number, 19)
        super().start()
        print(number, flush=True)

exiftool.Timer = Stopped
library = Library(Places(embed=True))
with library:
    library.write(sys.argv[1], Words("a cat"))
"""


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("signal", [SIGINT, 9])
def test_an_interrupted_run_ends_at_once_and_exiftool_with_it(signal: int, tmp_path: Path) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    before = photo.read_bytes()
    command = [sys.executable, "-c", ENDED, str(photo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None
        number = int(run.stdout.readline())
        run.send_signal(signal)
        run.wait(30)  # The limit of the stopped exiftool is 60 seconds.
    for _ in ended(number):
        time.sleep(0.02)
    assert photo.read_bytes() == before


def ended(number: int) -> Iterator[None]:
    """Waits, in steps, for the end of a process, on Linux; a zombie has no folder."""
    with suppress(OSError):
        while os.readlink(f"/proc/{number}/cwd"):
            yield


def test_no_temporary_folder_is_needed(tmp_path: Path, monkeypatch: Patch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    photo = save_noise(tmp_path / "a.jpg")
    before = photo.read_bytes()
    monkeypatch.setattr("tempfile.gettempdir", refuse)
    for is_dry in (True, False):
        library = Library(EMBED, dry_run=is_dry)
        done = library.write(str(photo), CAT)
        assert (done.problems, len(done.words)) == ([], 1)
        assert done.notes == ([f"{photo} would get 'a cat', 'cat'"] if is_dry else [])
        assert (photo.read_bytes() == before) == is_dry
    assert [*tmp_path.iterdir()] == [photo]
    assert b"a cat" in photo.read_bytes()
    assert xmp_packet("") not in photo.read_bytes()
