"""Captions in XMP and text files beside photos, and in photos by exiftool."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from samples import CAPTION, Output, Patch, write_xmp

from captioner.caption.caption import Caption
from captioner.cli.caption import output_options
from captioner.cli.descriptions import SHARED, Embedder
from captioner.cli.main import build_parser, main
from captioner.cli.output_options import OutputOptions
from captioner.cli.outputs import Outputs
from captioner.data.xmp import Description
from captioner.errors import UserError

LIGHTROOM = """\
<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Adobe XMP Core 7.0">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="4"
    xmp:CreatorTool="Lightroom"
    xmlns:dc="http://purl.org/dc/elements/1.1/">
   <!-- by hand -->
   <dc:subject><rdf:Bag><rdf:li>holiday</rdf:li><rdf:li>dog</rdf:li></rdf:Bag></dc:subject>
   <dc:description><rdf:Alt><rdf:li xml:lang="de">Ein Hund</rdf:li></rdf:Alt></dc:description>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


def exiftool(*arguments: str | Path) -> dict[str, Any]:
    """What exiftool reads in a file, by group and name, without captioner's copies."""
    command = ["exiftool", "-json", "-G1", "-XMP:all", "-IPTC:all", *arguments]
    (record,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    own = ("SourceFile", "XMP-captioner")
    return {name: value for name, value in record.items() if not name.startswith(own)}


@pytest.mark.exiftool
@pytest.mark.usefixtures("embedder")
def test_a_sidecar_of_another_program_is_merged(tmp_path: Path) -> None:
    path = tmp_path / "photo.xmp"
    path.write_text(LIGHTROOM, encoding="utf-8")
    before = exiftool(path)
    # What captioner wrote is replaced, the user's own keyword "dog" stays.
    for caption, nouns in (("a dog & a cat", ["dog", "cat"]), ("a boat", ["boat"])):
        write_xmp(path, Description(caption, nouns))
        assert exiftool(path) == before | {
            "XMP-dc:Description": caption,
            "XMP-dc:Description-en": caption,
            "XMP-dc:Subject": ["holiday", "dog", nouns[-1]],
        }
    text = path.read_text(encoding="utf-8")
    for kept in ("<?xpacket begin", "<!-- by hand --", "Adobe XMP Core 7.0", "<?xpacket end"):
        assert kept in text
    write_xmp(path, Description(caption, nouns))  # Writing twice changes nothing.
    assert path.read_text(encoding="utf-8") == text


LAUGHS = "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is not valid XML"),
        ("<svg xmlns='http://www.w3.org/2000/svg'/>", "is not XMP, or decl"),
        ("<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><x>&a;</x>", "is not XMP, or decl"),
        (f"<!DOCTYPE x [<!ENTITY a0 'ha'>{LAUGHS}]><x y='&a9;'>&a9;</x>", "is not valid XML"),
    ],
)
def test_a_file_that_is_not_xmp_is_left_alone(content: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.xmp"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"photo\.xmp {sentence}"):
        write_xmp(path, Description("a dog", ["dog"]))
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("options", "name"), [("--xmp", "a.xmp"), ("--xmp-for digikam", "a.png.xmp")]
)
def test_sidecars_and_texts_lie_beside_the_photo(
    options: str, name: str, folder: Path, capsys: Output
) -> None:
    before = {path.name for path in folder.iterdir()}
    text = [*CAPTION, "a.png", "--text"]
    assert main([*text, *options.split(), "--json", "out.json"]) == 0
    (record,) = json.loads(Path("out.json").read_text())
    assert {path.name for path in folder.iterdir()} - before == {"a.txt", "out.json", name}
    assert record["files"] == {"xmp": name, "text": "a.txt"}
    assert Path("a.txt").read_text() == f"{record['caption']}\n"
    assert record["caption"] in Path(name).read_text()
    assert main([*CAPTION, "a.png", "--xmp"]) == 0  # Whichever of both there is, is merged.
    assert [path.name for path in folder.glob("*.xmp")] == [name]
    Path("a.txt").write_text("mine")
    assert main(text) == 2
    assert "a.txt holds another text; --overwrite replaces it" in capsys.readouterr().err
    assert main([*text, "--overwrite"]) == 0
    assert Path("a.txt").read_text() == f"{record['caption']}\n"


def test_photos_that_share_a_sidecar_are_named_and_have_none(folder: Path, capsys: Output) -> None:
    Path("a.jpg").write_bytes(Path("a.png").read_bytes())
    command = [*CAPTION, "a.png", "b.png", "a.jpg"]
    assert main([*command, "--xmp", "--text", "--json", "out.json"]) == 2
    about = "2 files not written: it would be of several photos, such as a.xmp of a.png and of a."
    first, *others = capsys.readouterr().err.splitlines()
    assert about in first
    assert not any("would be" in line for line in others)
    errors = [record.get("error", "") for record in json.loads(Path("out.json").read_text())]
    assert errors == [SHARED, "", SHARED]
    assert {path.stem for path in folder.iterdir() if path.suffix in (".xmp", ".txt")} == {"b"}
    by_nobody = LIGHTROOM.replace("Ein Hund", "")
    Path("a.jpg.xmp").write_text(by_nobody, encoding="utf-8")  # Leaves a.xmp to a.png.
    assert main([*command, "--xmp"]) == 0
    assert {path.name for path in folder.glob("a*.xmp")} == {"a.xmp", "a.jpg.xmp"}
    assert ">holiday<" in (merged := Path("a.jpg.xmp").read_text())
    assert merged != by_nobody
    assert main([*command, "--xmp-for", "digikam"]) == 0


def parsed(*options: str) -> OutputOptions:
    return output_options(build_parser().parse_args(["caption", *options]))


def written(photo: str, confidence: float | None, sure: bool, *options: str) -> list[str]:
    """What a caption of "a dog" adds to the folder."""
    outputs = Outputs(parsed(*options), {photo: photo})
    before = set(Path().iterdir())
    caption = Caption("a dog", ("a", "dog"), -2.0, (-1.0, -1.0), np.ones((2, 1, 1)))
    caption = replace(caption, confidence=confidence, sure=sure, name=photo)
    assert not outputs.add(outputs.draw(caption))
    outputs.finish()
    return sorted(str(path) for path in set(Path().iterdir()) - before)


def test_doubt_goes_along_and_can_be_left_out(folder: Path, capsys: Output) -> None:
    beside, least = ("--xmp", "--text"), ("--min-confidence", "0.5")
    for low in (0.4, None):
        assert written("a.png", low, False, *beside, *least) == []
        said = "not sure enough for sidecars, texts and photos: 1"
        assert said in capsys.readouterr().err
    # Left out, it is finished all the same.
    resume = (*beside, "--jsonl", "o.jsonl", "--resume", *least)
    written("a.png", 0.4, False, *resume)
    assert Outputs(parsed(*resume), {"a.png": "a.png"}).finished == {"a.png"}

    assert written("a.png", 0.5, False, *beside, *least) == ["a.txt", "a.xmp"]
    assert written("b.png", 0.7, True, *beside) == ["b.txt", "b.xmp"]
    doubtful, sure = (Path(name).read_text() for name in ("a.xmp", "b.xmp"))
    assert ">0.50</captioner:confidence>" in doubtful
    assert (doubtful.count(">not sure<"), sure.count(">not sure<")) == (2, 0)


def test_a_dry_run_says_what_it_would_write(folder: Path, capsys: Output) -> None:
    assert written("a.png", 0.7, True, "--xmp", "--text", "--dry-run") == []
    said = "a.xmp would get 'a dog', 'dog'\ncaptioner: a.txt would get 'a dog'\n"
    assert capsys.readouterr().err == f"captioner: {said}"


DOG = Description("ein Hund & eine Bö", ["dog", "not sure"], "de", 0.42)
CAT = Description("a cat", ["cat"])


@pytest.fixture
def embedder() -> Iterator[Embedder]:
    if shutil.which("exiftool") is None:
        pytest.skip("needs exiftool (Debian's libimage-exiftool-perl)")
    embedder = Embedder()
    yield embedder
    embedder.close()


def save_noise(path: Path) -> Path:
    if path.suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x010F] = "Camera"
    Image.fromarray(pixels).save(path, exif=exif)
    os.utime(path, (1e9, 1e9))
    return path


def pixels(path: Path) -> Any:
    with Image.open(path) as photo:
        return np.asarray(photo)


@pytest.mark.exiftool
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif", "heic"])
def test_photos_get_xmp_and_iptc_alone(suffix: str, tmp_path: Path, embedder: Embedder) -> None:
    photo = save_noise(tmp_path / f"the photo.{suffix}")
    before = pixels(photo)
    for description in (DOG, CAT, DOG, DOG):  # What captioner wrote is replaced.
        assert embedder.embed(photo, description) == ""
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


@pytest.mark.exiftool
def test_words_by_somebody_stay(tmp_path: Path, embedder: Embedder) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    words = {"Caption-Abstract": "Unser Rex", "City": "Zürich", "Keywords": "dog"}
    edits = ["-XMP-xmp:Rating=4", *(f"-IPTC:{name}={word}" for name, word in words.items())]
    subprocess.run(["exiftool", "-q", "-overwrite_original", *edits, photo], check=True)
    assert embedder.embed(photo, DOG) == "Unser Rex"
    assert embedder.embed(photo, CAT) == "Unser Rex"  # The keyword "dog" is the user's.
    found = exiftool(photo)
    kept = {"IPTC:Caption-Abstract": "Unser Rex", "IPTC:City": "Zürich", "XMP-xmp:Rating": 4}
    kept |= {"IPTC:Keywords": ["dog", "cat"], "XMP-dc:Subject": "cat"}
    assert found.items() >= kept.items()
    assert "XMP-dc:Description" not in found
    assert embedder.embed(photo, CAT, overwrite=True) == ""
    assert exiftool(photo)["IPTC:Caption-Abstract"] == "a cat"


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
    assert embedder.embed(save_noise(tmp_path / "b.jpg"), DOG) == ""


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
