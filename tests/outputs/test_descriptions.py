"""Captions in XMP and text files beside photos, and in photos by exiftool."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples import CAPTION, Output, exiftool, write_xmp

from captioner.caption.caption import Caption
from captioner.cli.caption import output_options
from captioner.cli.main import build_parser, main
from captioner.data.xmp import Description
from captioner.errors import UserError
from captioner.outputs.descriptions import SHARED
from captioner.outputs.options import OutputOptions
from captioner.outputs.outputs import Outputs

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


@pytest.mark.exiftool
@pytest.mark.usefixtures("embedder")
def test_a_sidecar_of_another_program_is_merged(tmp_path: Path) -> None:
    path = tmp_path / "photo.xmp"
    path.write_text(LIGHTROOM, encoding="utf-8")
    before = exiftool(path)
    del before["XMP-dc:Description-de"]  # The packet has a copy.
    # What captioner wrote is replaced, the user's own keyword "dog" stays.
    for caption, nouns in (("a dog & a cat", ["dog", "cat"]), ("a boat", ["boat"])):
        write_xmp(path, Description(caption, nouns))
        assert exiftool(path) == before | {
            "XMP-dc:Description": caption,
            "XMP-dc:Description-en": caption,
            "XMP-iptcCore:AltTextAccessibility": caption,
            "XMP-iptcCore:AltTextAccessibility-en": caption,
            "XMP-dc:Subject": ["holiday", "dog", nouns[-1]],
        }
    text = path.read_text(encoding="utf-8")
    for kept in (
        '<rdf:li xml:lang="de">Ein Hund</rdf:li>',
        "<?xpacket begin",
        "<!-- by hand --",
        "Adobe XMP Core 7.0",
        "<?xpacket end",
    ):
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
    for number, mine in (("", "mine\r\n"), ("2", "mine, too")):
        Path("a.txt").write_bytes(mine.encode())
        assert main([*text, "--json", "kept.json", "--overwrite"]) == 0
        kept = "a.txt holds another text; --overwrite-descriptions replaces it"
        assert kept in capsys.readouterr().err
        (record_of_kept,) = json.loads(Path("kept.json").read_text())
        assert "error" not in record_of_kept
        assert record_of_kept["files"] == {"text": "a.txt"}
        assert Path("a.txt").read_bytes() == mine.encode()
        for _ in range(2):  # There is nothing to copy the second time.
            assert main([*text, "--overwrite-descriptions"]) == 0
        said = f"--overwrite-descriptions replaces {mine.strip()!r}; a copy: a.txt.before{number}"
        assert f"a.txt: {said}\n" in capsys.readouterr().err
        assert Path(f"a.txt.before{number}").read_bytes() == mine.encode()
        assert Path("a.txt").read_text() == f"{record['caption']}\n"
    assert not Path("a.txt.before3").exists()


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
    caption = replace(caption, confidence=confidence, sure=sure, name=photo, keywords=("dog",))
    assert not outputs.add(outputs.draw(caption))
    outputs.finish()
    return sorted(str(path) for path in set(Path().iterdir()) - before)


def test_doubt_goes_along_and_can_be_left_out(folder: Path, capsys: Output) -> None:
    beside, least = ("--xmp", "--text"), ("--min-confidence", "0.5")
    for low in (0.4, None):
        assert written("a.png", low, False, *beside, *least) == []
        said = "not sure enough for sidecars, texts and photos: 1"
        assert said in capsys.readouterr().out
    # Left out, it is finished all the same.
    resume = (*beside, "--jsonl", "o.jsonl", "--resume", *least)
    written("a.png", 0.4, False, *resume)
    assert Outputs(parsed(*resume), {"a.png": "a.png"}).finished == {"a.png"}

    assert written("a.png", 0.5, False, *beside, *least) == ["a.txt", "a.xmp"]
    assert written("b.png", 0.7, True, *beside) == ["b.txt", "b.xmp"]
    doubtful, sure = (Path(name).read_text() for name in ("a.xmp", "b.xmp"))
    assert ">0.50</captioner:confidence>" in doubtful
    assert (doubtful.count(">dog<"), sure.count(">dog<"), doubtful.count("not sure")) == (2, 2, 0)
    written("b.png", 0.7, True, *beside, "--keywords", "none")
    assert ">dog<" not in Path("b.xmp").read_text()


def test_a_dry_run_says_what_it_would_write(folder: Path, capsys: Output) -> None:
    assert written("a.png", 0.7, True, "--xmp", "--text", "--dry-run") == []
    said = "a.xmp would get 'a dog', 'dog'\na.txt would get 'a dog'\n"
    assert capsys.readouterr().out == said
