"""Captions in photos, by exiftool; and photos that a kill has torn."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from samples import CAPTION, Output, Patch, exiftool, own_packet, save_photo

from captioner.cli.main import main
from captioner.data.sidecars import words_of_person
from captioner.data.xmp import Description, XmpPacket
from captioner.errors import UserError
from captioner.outputs.embedding import Embedder
from captioner.vision.digest import photo_digest

DOG = Description("ein Hund & eine Bö", ["dog", "not sure"], "de", 0.42)
CAT = Description("a cat", ["cat"])


def save_noise(path: Path) -> Path:
    if path.suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x010F] = "Camera"
    Image.fromarray(pixels).save(path, exif=exif)
    os.utime(path, (1e9, 1e9))
    return path


def packet_in(photo: Path) -> XmpPacket:
    with Image.open(photo) as image:
        return XmpPacket(image.info["xmp"], "it")


def pixels(path: Path) -> Any:
    with Image.open(path) as photo:
        return np.asarray(photo)


@pytest.mark.exiftool
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif", "heic"])
def test_photos_get_xmp_and_iptc_alone(suffix: str, tmp_path: Path, embedder: Embedder) -> None:
    photo = save_noise(tmp_path / f"the photo.{suffix}")
    before, digest = pixels(photo), photo_digest(str(photo))
    for description in (DOG, CAT, DOG, DOG):  # What captioner wrote is replaced.
        embedder.embed(photo, description)
        assert photo_digest(str(photo)) == digest != ""
        assert (pixels(photo) == before).all()
        assert photo.stat().st_mtime == 1e9
    assert list(tmp_path.iterdir()) == [photo]
    found = exiftool("-EXIF:Make", photo)
    expected = {
        "IFD0:Make": "Camera",
        "XMP-dc:Description": DOG.caption,
        "XMP-dc:Description-de": DOG.caption,
        "XMP-dc:Subject": DOG.keywords,
    }
    if suffix in ("jpg", "tif"):
        expected |= {"IPTC:Caption-Abstract": DOG.caption, "IPTC:Keywords": DOG.keywords}
    assert found.items() >= expected.items()
    assert ("IPTC:Keywords" in found) == (suffix in ("jpg", "tif"))


def test_a_turned_heic_photo_is_another(tmp_path: Path) -> None:
    photo = tmp_path / "a.heic"
    digests = set()
    for turn in range(4):
        photo.write_bytes(b"\0\0\0\x18ftypheic irot%c mdat pixels" % turn)
        digests.add(photo_digest(str(photo)))
    assert len(digests) == 4


@pytest.mark.exiftool
def test_words_by_somebody_stay(tmp_path: Path, embedder: Embedder) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    words = {"Caption-Abstract": "Unser Rex", "City": "Zürich", "Keywords": "dog"}
    edits = ["-XMP-xmp:Rating=4", *(f"-IPTC:{name}={word}" for name, word in words.items())]
    subprocess.run(["exiftool", "-q", "-overwrite_original", *edits, photo], check=True)
    for description in (DOG, CAT):  # The keyword "dog" is the user's.
        assert words_of_person(photo) == "Unser Rex"
        embedder.embed(photo, replace(description, keywords_only=True))
    found = exiftool(photo)
    kept = {"IPTC:Caption-Abstract": "Unser Rex", "IPTC:City": "Zürich", "XMP-xmp:Rating": 4}
    kept |= {"IPTC:Keywords": ["dog", "cat"], "XMP-dc:Subject": "cat"}
    assert found.items() >= kept.items()
    assert "XMP-dc:Description" not in found
    for replaced in (["Unser Rex"], []):
        assert embedder.embed(photo, replace(CAT, overwrite=True)).replaced == replaced
        assert exiftool(photo)["IPTC:Caption-Abstract"] == "a cat"
        assert packet_in(photo).own_texts("before_Caption-Abstract") == ["Unser Rex"]


@pytest.mark.exiftool
@pytest.mark.parametrize("edit", ["-XMP-xmp:Rating=4", "-IPTC:Caption-Abstract=Rex"])
def test_tags_that_exiftool_alone_sees_stay(
    edit: str, tmp_path: Path, embedder: Embedder, monkeypatch: Patch
) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    subprocess.run(["exiftool", "-q", "-overwrite_original", edit, photo], check=True)
    monkeypatch.setattr("captioner.outputs.embedding.read_inside", lambda _: ([], []))
    monkeypatch.setattr("captioner.outputs.embedding.iptc_of", lambda _: {})
    before = photo.read_bytes()
    with pytest.raises(UserError, match="exiftool wrote no photo"):
        embedder.embed(photo, CAT)
    assert photo.read_bytes() == before


@pytest.mark.exiftool
def test_a_copy_has_no_control_characters(tmp_path: Path, embedder: Embedder) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    edit = "-IPTC:Caption-Abstract=Unser\x01Rex"
    subprocess.run(["exiftool", "-q", "-overwrite_original", edit, photo], check=True)
    embedder.embed(photo, replace(CAT, overwrite=True))
    assert packet_in(photo).own_texts("before_Caption-Abstract") == ["UnserRex"]


@pytest.mark.exiftool
def test_words_removed_by_a_person_do_not_come_back(tmp_path: Path, embedder: Embedder) -> None:
    iptc, xmp = (save_noise(tmp_path / f"{name}.jpg") for name in "ab")
    for photo, group, subject in ((iptc, "IPTC", "Keywords"), (xmp, "XMP", "Subject")):
        embedder.embed(photo, Description("a dog and a cat", ["dog", "cat"]))
        name = "Caption-Abstract" if group == "IPTC" else "Description"
        edits = [f"-{group}:{name}=", f"-{group}:{subject}-=dog"]
        subprocess.run(["exiftool", "-q", "-overwrite_original", *edits, photo], check=True)
        for keywords in (["dog", "boat"], ["boat", "dog"]):
            embedder.embed(photo, Description("a dog in a boat", keywords))
            found = exiftool(photo)
            assert found["IPTC:Keywords"] == "boat"
            assert "IPTC:Caption-Abstract" not in found
    assert "XMP-dc:Description" not in found
    assert embedder.embed(iptc, replace(CAT, overwrite=True)).replaced == []
    assert exiftool(iptc)["IPTC:Caption-Abstract"] == "a cat"


@pytest.mark.exiftool
def test_a_photo_that_cannot_be_written_is_left_alone(tmp_path: Path, embedder: Embedder) -> None:
    photo, deep = save_noise(tmp_path / "a.bmp"), save_noise(tmp_path / "deep.jpg")
    long = f"-XMP-dc:Rights={'x' * 100_000}"
    subprocess.run(["exiftool", "-q", "-overwrite_original", long, deep], check=True)
    for path, reason in ((photo, "Writing of BMP files"), (deep, "XMP in several parts")):
        before = path.read_bytes()
        with pytest.raises(UserError, match=reason):
            embedder.embed(path, DOG)
        assert path.read_bytes() == before
    embedder.embed(save_noise(tmp_path / "b.jpg"), DOG)


@pytest.mark.exiftool
def test_the_command_embeds_and_resumes_and_says_where_to_get_exiftool(
    folder: Path, embedder: Embedder, monkeypatch: Patch, capsys: Output
) -> None:
    command = [*CAPTION, "a.png", "--embed", "--jsonl", "o.jsonl"]
    assert main(command) == 0
    record = json.loads(Path("o.jsonl").read_text())
    assert record["files"] == {"embed": "a.png"}
    assert exiftool("a.png")["XMP-dc:Description"] == record["caption"]
    assert main([*command, "--resume"]) == 0
    assert "1 of 1 photos are captioned already" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    for more in (["--dry-run"], []):
        assert main([*CAPTION, "a.png", "--embed", *more]) == 2
        assert "--embed needs exiftool; see https://exiftool.org" in capsys.readouterr().err


@pytest.mark.exiftool
def test_a_photo_keeps_attributes_links_and_times(tmp_path: Path, embedder: Embedder) -> None:
    folder = tmp_path / "100%f %d"
    folder.mkdir()
    attributed, linked, read_only = (save_noise(folder / f"{name}.jpg") for name in "abc")
    os.setxattr(attributed, "user.xdg.tags", b"Rex")
    os.link(linked, folder / "link.jpg")
    read_only.chmod(0o444)
    for photo in (attributed, linked, read_only):
        before = photo.stat()
        embedder.embed(photo, DOG)
        after = photo.stat()
        assert packet_in(photo).descriptions == [DOG.caption]
        assert (after.st_mtime_ns, after.st_mode) == (before.st_mtime_ns, before.st_mode)
        assert (after.st_ino == before.st_ino) == (photo == linked)
    assert os.getxattr(attributed, "user.xdg.tags") == b"Rex"
    assert (folder / "link.jpg").read_bytes() == linked.read_bytes()
    assert len(list(folder.iterdir())) == 4


@pytest.mark.exiftool
def test_a_photo_on_a_read_only_disk_is_named(
    tmp_path: Path, embedder: Embedder, monkeypatch: Patch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    photo = save_noise(tmp_path / "a.jpg")
    for method in ("write_bytes", "unlink"):
        monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(UserError, match=r"in .*a\.jpg: Read-only file system"):
        embedder.embed(photo, CAT)


@pytest.mark.exiftool
@pytest.mark.parametrize("missing", ["os.setxattr", "os.chown"])
def test_attributes_that_cannot_be_copied_stay_in_place(
    missing: str, tmp_path: Path, embedder: Embedder, monkeypatch: Patch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    photo = save_noise(tmp_path / "a.jpg")
    os.setxattr(photo, "user.xdg.tags", b"Rex")
    before = photo.stat().st_ino
    monkeypatch.setattr(missing, refuse)
    embedder.embed(photo, DOG)
    assert packet_in(photo).descriptions == [DOG.caption]
    assert (photo.stat().st_ino, os.getxattr(photo, "user.xdg.tags")) == (before, b"Rex")


def tear(kind: str, old: bytes, new: bytes) -> bytes:
    """A photo over which another was being copied."""
    half = len(new) // 2
    return {
        "empty": b"",
        "half": new[:half],
        "overwritten in place": new[:half] + old[half:],
        "not cut": new + old[-2000:],
        "untouched": old,
        "edited": old[:-2] + b"edited" + old[-2:],
    }[kind]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize(
    "kind", ["empty", "half", "overwritten in place", "not cut", "untouched", "edited"]
)
def test_a_torn_photo_is_put_back_before_it_is_read(
    kind: str, suffix: str, folder: Path, capsys: Output
) -> None:
    photo, link = Path(f"a.{suffix}"), Path("link")
    text, exif, packet = PngInfo(), Image.Exif(), own_packet(CAT)
    text.add_itxt("XML:com.adobe.xmp", packet.decode())
    exif[700] = packet
    options = {"png": {"pnginfo": text}, "tif": {"exif": exif}}.get(suffix, {"xmp": packet})
    with Image.open(save_photo(Path("old.png"), 3, (600, 400))) as image:
        image.save(photo, quality=97)
        old = photo.read_bytes()
        image.save(photo, quality=97, **options)
    new = photo.read_bytes()
    photo.write_bytes(torn := tear(kind, old, new))
    os.link(photo, link)
    whole = Path(f"{photo}_exiftool_tmp")
    whole.write_bytes(new)
    os.utime(whole, (1e9, 1e9))
    assert main([*CAPTION, f"{photo}"]) == 0
    is_mended = kind not in ("untouched", "edited")
    assert ("was torn by a run that was killed" in capsys.readouterr().err) == is_mended
    assert link.read_bytes() == (new if is_mended else torn)
    assert whole.exists() != is_mended
    assert (photo.stat().st_mtime == 1e9) == is_mended


KILLED = """
import os, shutil, sys
from pathlib import Path
from captioner.outputs.embedding import Embedder
from captioner.vision.digest import photo_digest
from captioner.data.xmp import Description

def torn_copy(source, target):
    content = open(source, "rb").read()
    with open(target, "wb") as file:
        file.write(content[: len(content) // 2])
    print(embedder._exiftool.pid, flush=True)
    os.kill(os.getpid(), 9)

shutil.copyfile = torn_copy
embedder = Embedder()
embedder.embed(Path(sys.argv[1]), Description("a cat", ["cat"]))
"""


@pytest.mark.exiftool
@pytest.mark.usefixtures("embedder")
def test_a_kill_within_the_copy_loses_no_photo(folder: Path, capsys: Output) -> None:
    photo = save_noise(Path("a.jpg"))
    before = pixels(photo)
    os.link(photo, "link.jpg")
    done = subprocess.run([sys.executable, "-c", KILLED, photo], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    if sys.platform == "linux":  # exiftool ends with captioner.
        while Path(f"/proc/{int(done.stdout)}/cwd").is_dir():  # A zombie has none.
            time.sleep(0.02)
    with pytest.raises(OSError, match="truncated"):
        pixels(photo)
    assert main([*CAPTION, "link.jpg", "a.jpg", "--embed", "--dry-run"]) == 0
    assert "a.jpg was torn by a run that was killed" in capsys.readouterr().err
    assert (pixels(photo) == before).all()
    assert packet_in(photo).descriptions == ["a cat"]
    assert os.path.samefile(photo, "link.jpg")
    assert photo.stat().st_mtime == 1e9
    assert not Path("a.jpg_exiftool_tmp").exists()


STUB = """#!/bin/sh
if [ ! -e "{folder}/stumbled" ]; then touch "{folder}/stumbled"; kill -{signal} $$; fi
PATH="{path}" exec exiftool "$@"
"""


@pytest.mark.exiftool
@pytest.mark.parametrize(
    ("signal", "reason"), [("KILL", "died"), ("STOP", "took more than 60 seconds")]
)
def test_an_exiftool_that_dies_or_stops_costs_its_photo_alone(
    signal: str,
    reason: str,
    folder: Path,
    embedder: Embedder,
    monkeypatch: Patch,
    capsys: Output,
) -> None:
    stub = Path("bin/exiftool")
    stub.parent.mkdir()
    path = os.environ["PATH"]
    stub.write_text(STUB.format(folder=folder, signal=signal, path=path))
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent.resolve()}{os.pathsep}{path}")
    limits = iter([0.1] if signal == "STOP" else [])  # In place of 60 seconds, for the first photo.
    monkeypatch.setattr(
        "captioner.outputs.embedding.Timer",
        lambda seconds, kill: Timer(next(limits, seconds), kill),
    )
    tables = ["--json", "o.json", "--csv", "o.csv", "--html", "o.html"]
    assert main([*CAPTION, "a.png", "b.png", "--embed", *tables]) == 2
    said = f"cannot embed the caption in a.png: exiftool {reason}"
    assert said in capsys.readouterr().err
    first, second = json.loads(Path("o.json").read_text())
    assert first["error"] == said
    assert second["files"] == {"embed": "b.png"}
    assert Path("o.csv").exists()
    assert Path("o.html").exists()
    assert main([*CAPTION, "a.png", "--embed"]) == 0


@pytest.mark.exiftool
@pytest.mark.usefixtures("embedder")
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_no_temporary_folder_is_needed(
    dry: list[str], folder: Path, monkeypatch: Patch, capsys: Output
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", refuse)
    assert main([*CAPTION, "a.png", "--embed", *dry]) == 0
    assert ("a.png would get" in capsys.readouterr().err) == bool(dry)
    assert not list(folder.glob(".captioner*"))
