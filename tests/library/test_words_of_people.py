"""A description by a person stays the photo's, wherever it stands; and dry runs tell the truth."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from samples import CAPTION, Output, own_packet, save_described, write_xmp, xmp_packet

from captioner.caption.caption import Caption
from captioner.cli.caption import output_options
from captioner.cli.main import build_parser, main
from captioner.data.sidecars import words_of_person
from captioner.data.xmp import Description, XmpPacket
from captioner.outputs.descriptions import Descriptions

MINE = "my own words"
OWN = own_packet(Description("a cat", ["cat"]))
DESCRIBED = "<dc:description><rdf:Alt><rdf:li xml:lang='{}'>{}</rdf:li></rdf:Alt></dc:description>"


FORMS = {
    "a foreign language": DESCRIBED.format("de-DE", MINE),
    "the language c": DESCRIBED.format("c", MINE),
    "after a comment": DESCRIBED.format("x-default", f"<!-- c -->{MINE}"),
    "after an instruction": DESCRIBED.format("x-default", f"<?p i?>{MINE}"),
    "in an element": DESCRIBED.format("x-default", "<dc:b>my own</dc:b> words"),
    "a structure": "<dc:description rdf:parseType='Resource'><rdf:value>my own words</rdf:value>"
    "</dc:description>",
    "a value as attribute": f"<dc:description rdf:value='{MINE}'/>",
    "an item's attribute": "<dc:description><rdf:Alt><rdf:li rdf:value='my own words'/></rdf:Alt>"
    "</dc:description>",
    "plain, after a comment": f"<dc:description><!-- c -->{MINE}</dc:description>",
    "a second property": DESCRIBED.format("x-default", "") + DESCRIBED.format("fr", MINE),
    "of TIFF": f"<tiff:ImageDescription>{MINE}</tiff:ImageDescription>",
    "alt text": "<i:AltTextAccessibility xmlns:i='http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/'>"
    f"<rdf:Alt><rdf:li xml:lang='en'>{MINE}</rdf:li></rdf:Alt></i:AltTextAccessibility>",
}
PLACES = {"of TIFF": "before_ImageDescription", "alt text": "before_AltTextAccessibility"}
KEPT = f"a.png keeps its description '{MINE}'; --overwrite-descriptions replaces it"


@pytest.mark.parametrize("form", FORMS)
def test_a_description_in_any_form_is_a_persons(form: str, folder: Path, capsys: Output) -> None:
    assert [text for text in XmpPacket(xmp_packet(FORMS[form]), "it").descriptions if text == MINE]
    content = xmp_packet(FORMS[form])
    Path("a.xmp").write_bytes(content)
    assert main([*CAPTION, "a.png", "--xmp", "--overwrite", "--json", "o.json"]) == 0
    assert KEPT in capsys.readouterr().err
    assert "error" not in json.loads(Path("o.json").read_text())[0]
    after = XmpPacket(Path("a.xmp").read_bytes(), "it")
    assert after.descriptions == XmpPacket(content, "it").descriptions
    assert after.own_texts("description") == []
    assert main([*CAPTION, "a.png", "--xmp", "--overwrite-descriptions"]) == 0
    found = XmpPacket(Path("a.xmp").read_bytes(), "it")
    assert found.descriptions[0] == found.own_texts("description")[0]
    if form != "a second property":  # Which XMP does not allow.
        assert found.own_texts(PLACES.get(form, "before_description")) == [MINE]
        said = capsys.readouterr().err
        assert f"replaces '{MINE}'; a copy: captioner:before in a.xmp\n" in said
        assert "files in which words of people are replaced: 1" in said
        assert main([*CAPTION, "a.png", "--xmp"]) == 0  # It is captioner's from then on.
        assert XmpPacket(Path("a.xmp").read_bytes(), "it").descriptions == found.descriptions


INSIDE: dict[str, dict[str, Any]] = {
    "XMP": {"xmp": xmp_packet(DESCRIBED.format("de-DE", MINE))},
    "EXIF": {"description": MINE},
    "Windows": {"comment": f"{MINE}\0".encode("utf-16-le")},
    "ASCII": {"user": b"ASCII\0\0\0" + MINE.encode()},
    "UNICODE": {"user": b"UNICODE\0" + MINE.encode("utf-16-be")},
    "PNG": {"png": MINE},
}


@pytest.mark.parametrize("place", INSIDE)
def test_a_description_inside_keeps_the_machines_out_of_a_new_sidecar(
    place: str, folder: Path, capsys: Output
) -> None:
    save_described(Path("a.png"), **INSIDE[place])
    assert words_of_person(Path("a.png")) == MINE
    command = [*CAPTION, "a.png", "b.png", "--xmp"]
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(command) == 0
    assert KEPT in capsys.readouterr().err
    if Path("a.xmp").exists():  # Keywords alone.
        assert XmpPacket(Path("a.xmp").read_bytes(), "it").descriptions == []
    assert XmpPacket(Path("b.xmp").read_bytes(), "it").descriptions


def test_texts_by_cameras_are_nobodys_words(folder: Path) -> None:
    tags = {"description": "SONY DSC", "user": b"ASCII\0\0\0Screenshot"}
    save_described(Path("a.png"), xmp_packet(DESCRIBED.format("x-default", "SONY DSC")), **tags)
    assert words_of_person(Path("a.png")) == ""
    assert main([*CAPTION, "a.png", "--xmp"]) == 0


def test_a_caption_is_withdrawn_where_a_person_describes_the_photo_later(folder: Path) -> None:
    write_xmp(Path("a.xmp"), Description("a cat", ["cat"]))
    save_described(Path("a.png"), description=MINE)
    assert main([*CAPTION, "a.png", "--xmp"]) == 0
    found = XmpPacket(Path("a.xmp").read_bytes(), "it")
    assert found.descriptions == found.own_texts("description") == []


def test_an_empty_text_is_none_and_texts_resume_and_have_a_form(folder: Path) -> None:
    Path("a.txt").write_text(" \n")
    assert main([*CAPTION, "a.png", "--text", "--quiet", "--format", "sks, {caption}"]) == 0
    assert Path("a.txt").read_text().startswith("sks, ")
    Path("a.txt").write_text("mine")
    assert main([*CAPTION, "a.png", "b.png", "--text", "--resume"]) == 0
    assert Path("a.txt").read_text() == "mine"
    assert Path("b.txt").read_text().strip()
    assert main([*CAPTION, "a.png", "--text", "--json", "o.json", "--resume"]) == 2


def test_a_photo_that_keeps_its_words_is_finished(folder: Path, capsys: Output) -> None:
    Path("a.txt").write_text(MINE)
    write_xmp(Path("b.xmp"), Description("a cat", ["cat"]))
    save_described(Path("b.png"), description=MINE)
    command = [*CAPTION, "a.png", "b.png", "--text", "--xmp", "--jsonl", "o.jsonl"]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--resume"]) == 0
    assert capsys.readouterr().err.startswith("captioner: 2 of 2 photos are captioned already\n")


NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
}


def take_out(path: Path, *places: str) -> None:
    """What a person takes out of a sidecar, by XPath."""
    root = etree.fromstring(path.read_bytes())
    for place in places:
        for element in root.xpath(place, namespaces=NAMESPACES):
            element.getparent().remove(element)
    path.write_bytes(etree.tostring(root))


@pytest.mark.parametrize(
    "place",
    ["//dc:description", "//dc:description/*/*", "//dc:description//*[@xml:lang='x-default']"],
)
def test_words_removed_by_a_person_do_not_come_back(
    place: str, folder: Path, capsys: Output
) -> None:
    path = Path("a.xmp")
    path.write_bytes(xmp_packet("<dc:subject><rdf:Bag><rdf:li>Rex</rdf:li></rdf:Bag></dc:subject>"))
    write_xmp(path, Description("a dog", ["dog", "cat"]))
    take_out(path, place, "//dc:subject//rdf:li[.='cat']")
    for keywords in (["cat", "boat"], ["dog", "cat"], ["cat", "dog"]):
        assert write_xmp(path, Description("a boat", keywords)).is_taken_out
        content = path.read_bytes()
        found = XmpPacket(content, "it")
        assert "a boat" not in found.descriptions
        subjects = etree.fromstring(content).xpath("//dc:subject//rdf:li", namespaces=NAMESPACES)
        assert [item.text for item in subjects] == ["Rex", *(set(keywords) - {"cat"})]
    assert main([*CAPTION, "a.png", "--xmp"]) == 0
    said = "a.xmp: a person took its caption out; --overwrite-descriptions writes it again"
    assert said in capsys.readouterr().err
    assert main([*CAPTION, "a.png", "--xmp", "--overwrite-descriptions"]) == 0
    assert XmpPacket(path.read_bytes(), "it").own_texts("description") != ["a dog"]
    assert main([*CAPTION, "a.png", "--xmp"]) == 0
    assert said not in capsys.readouterr().err


def test_temporary_files_of_killed_runs_are_removed(folder: Path) -> None:
    Path("maps").mkdir()
    for suffix in (".xmp", ".png"):
        place = "maps" if suffix == ".png" else ""
        old, new = (Path(place, f".captioner-{number}{suffix}") for number in range(2))
        for path in (old, new):
            path.touch()
        os.utime(old, (1, 1))
        assert main([*CAPTION, "a.png", "--xmp", "--overlay", "maps/", "--overwrite"]) == 0
        assert (old.exists(), new.exists()) == (False, True)  # The new one may be being written.


def test_keywords_of_twenty_thousand_are_merged() -> None:
    words = [f"w{number}" for number in range(20_000)]
    content = xmp_packet("")
    for _ in range(2):
        merged = XmpPacket(content, "it")
        merged.merge(Description("a dog", words))
        content = merged.as_file()
    assert XmpPacket(content, "it").own_texts("subject") == words


SIDECARS: dict[str, bytes | None] = {
    "none": None,
    "empty": xmp_packet(""),
    "machine": OWN,
    "camera": xmp_packet(DESCRIBED.format("x-default", "SONY DSC")),
    "person": xmp_packet(DESCRIBED.format("x-default", MINE)),
    "foreign": xmp_packet(DESCRIBED.format("de-DE", MINE)),
    "the same": xmp_packet(DESCRIBED.format("en", "a dog")),
    "unreadable": b"<x",
}
INSIDES = [{}, {"xmp": OWN}, {"xmp": b"<x"}, *INSIDE.values()]
TEXTS = [None, "", "a dog\n", MINE]
STATES = st.tuples(
    st.sampled_from(sorted(SIDECARS)),
    st.sampled_from(range(len(INSIDES))),
    st.sampled_from(TEXTS),
    st.sampled_from(["", "a.xmp", "a.txt", "a.png.xmp"]),  # A folder in the place of a file.
    st.booleans(),  # A folder that takes no files, but from root.
)
OPTIONS = ["--xmp", "--xmp-for digikam", "--text", "--overwrite-descriptions"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(
    photos: list[str], options: list[str], announced: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """What was written by photo and option, and the problems; announces what it would write."""
    arguments = build_parser().parse_args(["caption", *options])
    named = {photo: photo for photo in photos}
    descriptions = Descriptions(output_options(arguments), named, announced.append)
    caption = Caption("a dog", ("a", "dog"), -2.0, (-1.0, -1.0), np.ones((2, 1, 1)))
    written, problems = {}, []
    for photo in photos:
        done = descriptions.write(photo, replace(caption, sure=True))
        written[photo] = done.files
        problems += [*done.problems, *filter(None, [done.kept])]
    descriptions.close()
    return written, problems


def assert_dry_run_is_true(folder: Path, states: list[Any], options: list[str]) -> None:
    photos = []
    for number, (sidecar, inside, text, blocked, is_closed) in enumerate(states):
        place = folder / str(number)
        place.mkdir()
        save_described(place / "a.png", **INSIDES[inside])
        if (content := SIDECARS[sidecar]) is not None:
            (place / "a.xmp").write_bytes(content)
        if text is not None:
            (place / "a.txt").write_text(text)
        if blocked:
            (place / blocked).unlink(missing_ok=True)
            (place / blocked).mkdir()
        place.chmod(0o500 if is_closed else 0o700)
        photos.append(str(place / "a.png"))
    before, announced = contents(folder), []
    written, problems = run(photos, [*options, "--dry-run"], announced)
    assert not any(written.values())
    assert contents(folder) == before
    told = {each.partition(" would get ")[0]: each for each in announced if " would get " in each}
    written, real_problems = run(photos, options, [])
    assert [each.partition(":")[0] for each in real_problems] == [
        each.partition(":")[0] for each in problems
    ]
    after = contents(folder)
    kept = {path for path, content in after.items() if path.endswith(".txt") and b"my" in content}
    paths = {path for each in written.values() for path in each.values()}
    changed = {path for path in paths if after[path] != before.get(path)}
    assert changed - kept == told.keys()
    copies = {f"{path}.before" for path in told}
    assert {path for path in after if after[path] != before.get(path)} <= told.keys() | copies
    for path, sentence in told.items():
        if path.endswith(".xmp"):
            is_set = XmpPacket(after[path], path).own_texts("description") == ["a dog"]
            assert is_set == ("'a dog'" in sentence)
        elif path.endswith(".txt"):
            assert after[path] == b"a dog\n"
    for place in folder.iterdir():
        place.chmod(0o700)


@given(st.lists(STATES, min_size=1, max_size=4), st.sets(st.sampled_from(OPTIONS)))
@settings(deadline=None)
def test_a_dry_run_announces_what_the_run_does(states: list[Any], options: set[str]) -> None:
    given_options = [word for option in sorted(options | {"--xmp"}) for word in option.split()]
    with TemporaryDirectory() as folder:
        assert_dry_run_is_true(Path(folder), states, given_options)


@pytest.mark.exiftool
@given(st.lists(STATES, min_size=1, max_size=4), st.sets(st.sampled_from(OPTIONS)))
@settings(deadline=None, max_examples=10)
def test_a_dry_run_of_embedding_announces_the_run(states: list[Any], options: set[str]) -> None:
    if shutil.which("exiftool") is None:
        pytest.skip("needs exiftool (Debian's libimage-exiftool-perl)")
    given_options = [word for option in sorted(options) for word in option.split()]
    with TemporaryDirectory() as folder:
        assert_dry_run_is_true(Path(folder), states, ["--embed", *given_options])
