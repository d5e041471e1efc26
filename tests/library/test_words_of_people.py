"""A description by a person stays the photo's, wherever it stands; and dry runs tell the truth."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import (
    Patch,
    own_packet,
    save_described,
    save_photo,
    words_of_person,
    write_xmp,
    xmp_packet,
    xmp_texts,
)

from captioner.library import Library, Places, Words, Written

MINE = "my own words"
PATH = os.environ["PATH"]
CAT, DOG = Words("a cat", ["cat"]), Words("a dog", ["dog"], confidence=0.5)
BY_PERSON = Words("Rex and I", ["Rex"], by_person=True)
OWN = own_packet(CAT)
DESCRIBED = "<dc:description><rdf:Alt><rdf:li xml:lang='{}'>{}</rdf:li></rdf:Alt></dc:description>"
BESIDE = Places("lightroom", text=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_photo(Path("a.png"))
    monkeypatch.setenv("PATH", "")  # Without exiftool, which other tests have.


def write(words: Words, *own_texts: str, photo: str = "a.png", **options: Any) -> Written:
    library = Library(**{"places": BESIDE, **options})
    return library.write(photo, replace(words, own_texts=own_texts))


def said(by: str) -> list[str]:
    """The descriptions of a photo by somebody."""
    library = Library()
    return [each.text for each in library.said("a.png") if each.by == by]


INSIDE: dict[str, dict[str, Any]] = {
    "XMP": {"xmp": xmp_packet(DESCRIBED.format("de-DE", MINE))},
    "EXIF": {"description": MINE},
    "Windows": {"comment": f"{MINE}\0".encode("utf-16-le")},
    "ASCII": {"user": b"ASCII\0\0\0" + MINE.encode()},
    "UNICODE": {"user": b"UNICODE\0" + MINE.encode("utf-16-be")},
    "PNG": {"png": MINE},
}


@pytest.mark.parametrize("place", INSIDE)
def test_a_description_inside_keeps_the_machines_out_of_a_new_sidecar(place: str) -> None:
    save_described(Path("a.png"), **INSIDE[place])
    assert words_of_person(Path("a.png")) == MINE
    done = write(CAT)
    assert (done.kept, done.files["xmp"]) == (MINE, "a.xmp")
    assert xmp_texts(Path("a.xmp"), "dc:description") == []
    assert xmp_texts(Path("a.xmp"), "dc:subject") == ["cat"]
    os.unlink("a.xmp")
    assert "xmp" not in write(Words("a cat")).files  # It would be empty.
    assert write(CAT, overwrite=True).kept == ""
    assert xmp_texts(Path("a.xmp"), "dc:description") == ["a cat"]


def test_wide_letters_are_in_the_order_of_exif() -> None:
    text = b"UNICODE\0" + "我们的狗".encode("utf-16-be")
    save_described(Path("a.png"), user=text, endian=">")
    assert said("person") == ["我们的狗"]


def test_a_caption_is_withdrawn_where_a_person_describes_the_photo_later() -> None:
    for words in (CAT, Words("", ["cat"])):  # Or where keywords alone are wanted.
        write_xmp(Path("a.xmp"), CAT)
        if words is CAT:
            save_described(Path("a.png"), description=MINE)
        write(words, places=Places("lightroom"))
        assert xmp_texts(Path("a.xmp"), "dc:description") == []
        assert xmp_texts(Path("a.xmp"), "captioner:description") == []
        assert xmp_texts(Path("a.xmp"), "dc:subject") == ["cat"]
        save_photo(Path("a.png"))


def test_a_persons_caption_from_a_table_gives_way_to_no_machines() -> None:
    write(BY_PERSON)
    assert said("table") == ["Rex and I"]
    done = write(CAT)
    assert done.kept == "Rex and I"
    assert xmp_texts(Path("a.xmp"), "dc:subject") == ["Rex"]
    assert write(Words("Rex", by_person=True)).kept == ""
    assert said("table") == ["Rex"]
    assert not write(CAT, overwrite=True).kept
    assert said("captioner") == ["a cat"]


@pytest.mark.parametrize(
    ("text", "own", "line", "is_replaced"),
    [
        ("a dog\n", [], None, True),  # As the sidecar says.
        ("a boat", ["a boat"], None, True),  # As a record says, also of the photo of that name.
        ("sks style, a dog", ["sks style, a dog"], None, True),
        ("sks style, a dog", [], "ohwx style, a cat", True),
        ("sks style, a cat", [], "ohwx style, a cat", True),  # Another trigger word.
        ("Ohwx style, a cat", [], "ohwx style, a cat", False),  # A person wrote it so.
        ("sks style, a boat", [], "ohwx style, a cat", False),
        ("sks style, a boat", ["a boat"], "ohwx style, a cat", True),
        ("Rex, a cat", [], None, False),
        ("a cat named Rex", [], "ohwx, a cat", False),
        ("mine", ["a boat"], "ohwx, a cat", False),
        (" \n", [], None, True),
    ],
)
def test_a_text_is_captioners_by_record_sidecar_or_trigger_word(
    text: str, own: list[str], line: str | None, is_replaced: bool
) -> None:
    write_xmp(Path("a.xmp"), DOG)
    Path("a.txt").write_text(text)
    done = write(Words("a cat", text=line), *own)
    assert done.kept == ("" if is_replaced else text)
    assert Path("a.txt").read_text() == (f"{line or 'a cat'}\n" if is_replaced else text)
    assert not Path("a.txt.before").exists()


def test_a_persons_text_is_copied_once_and_comes_back() -> None:
    places = Places(text=True)
    for number, mine in (("", "mine\r\n"), ("2", "mine, too")):
        Path("a.txt").write_bytes(mine.encode())
        assert "a.txt holds another text; " in write(CAT, places=places).notes[0]
        if number:  # A run was killed between the copy and the text.
            shutil.copy("a.txt", "a.txt.before2")
        for replaced in ([mine.strip()], []):
            done = write(CAT, places=places, overwrite=True)
            assert done.replaced == replaced
        assert Path(f"a.txt.before{number}").read_bytes() == mine.encode()
        assert Path("a.txt").read_text() == "a cat\n"
    assert not Path("a.txt.before3").exists()
    shutil.copy("a.txt", "a.txt.before3")  # A kill in a later run, of which nothing is left.
    library = Library()
    for text in ("mine, too", "mine\r\n"):
        assert library.undo("a.png", CAT).words == {"text": ["a cat"]}
        assert Path("a.txt").read_bytes() == text.encode()
        assert not library.undo("a.png", CAT).words
        Path("a.txt").write_text("a cat")
    assert not library.undo("a.png", Words("a cat", by_person=True)).words
    assert library.undo("a.png", CAT).words == {"text": ["a cat"]}
    assert sorted(os.listdir()) == ["a.png"]


def test_undoing_leaves_other_words_and_counts_texts() -> None:
    Path("a.txt").write_text("mine")
    Path("a.xmp").write_bytes(xmp_packet(""))  # Of others.
    library = Library()
    done = library.undo("a.png", CAT)
    assert (done.words, done.kept, done.problems) == ({}, "mine", [])
    Path("a.xmp").write_bytes(b"<x")  # Neither read nor reported.
    assert library.undo("a.png", CAT).problems == []
    assert library.undo("gone.png").problems == ["gone.png does not exist"]
    Path("a.xmp").write_bytes(OWN)
    Path("a.txt").write_text("a cat")
    library = Library(dry_run=True)
    assert library.undo("a.png").notes == [
        "a.txt would lose 'a cat'", "a.xmp would lose 'a cat', 'cat'"
    ]  # fmt: skip
    assert Path("a.xmp").read_bytes() == OWN
    library = Library()
    library.undo("a.png")
    assert sorted(os.listdir()) == ["a.png"]


def test_a_dry_run_asks_nothing_of_a_folder_in_which_nothing_would_change(
    monkeypatch: Patch,
) -> None:
    Path("a.txt").write_text("mine")
    monkeypatch.delattr("captioner.files.check_writable")
    library = Library(dry_run=True)
    done = library.undo("a.png")
    assert (done.kept, done.problems) == ("mine", [])


def test_temporary_files_of_killed_runs_are_removed() -> None:
    old, new = (Path(f".captioner-{number}.xmp") for number in range(2))
    for path in (old, new):
        path.touch()
    os.utime(old, (1, 1))
    write(CAT, dry_run=True)
    assert old.exists()
    write(CAT)
    assert (old.exists(), new.exists()) == (False, True)  # The new one may be being written.


SIDECARS: dict[str, bytes | None] = {
    "none": None,
    "empty": xmp_packet(""),
    "machine": OWN,
    "camera": xmp_packet(DESCRIBED.format("x-default", "SONY DSC")),
    "person": xmp_packet(DESCRIBED.format("x-default", MINE)),
    "foreign": xmp_packet(DESCRIBED.format("de-DE", MINE)),
    "the same": xmp_packet(DESCRIBED.format("en", "a dog")),
    "structured": xmp_packet("<dc:subject rdf:parseType='Resource'><dc:a>1</dc:a></dc:subject>"),
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
PLACES = [BESIDE, Places("digikam"), Places(text=True)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make(place: Path, state: tuple[str, int, str | None, str, bool]) -> str:
    sidecar, inside, text, blocked, is_closed = state
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
    return str(place / "a.png")


def assert_promises(states: list[Any], places: Places, overwrite: bool, is_dry: bool) -> None:
    """A dry run announces what the run does; undoing loses no words of people."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        photos = [make(folder / f"{number}", state) for number, state in enumerate(states)]
        before = contents(folder)
        library = Library(places, overwrite, dry_run=True)
        announced = [library.write(photo, DOG) for photo in photos]
        assert contents(folder) == before
        library = Library(places, overwrite)
        done = [library.write(photo, DOG) for photo in photos]
        after = contents(folder)
        for dry, real in zip(announced, done, strict=True):
            assert dry.problems == real.problems
            assert (dry.words, dry.kept, dry.replaced) == (real.words, real.kept, real.replaced)
            told = {each.partition(" would get ")[0] for each in dry.notes if " would " in each}
            written = {path for path in real.files.values() if after[path] != before.get(path)}
            assert written == told
        library = Library(places, dry_run=is_dry)
        for photo in photos:
            library.undo(photo, DOG)
        left = contents(folder)
        assert not is_dry or left == after
        for path, content in before.items():  # Words of people come back.
            if not is_dry and MINE.encode() in content and path.endswith((".xmp", ".txt")):
                assert MINE.encode() in left[path]
        for place in folder.iterdir():
            place.chmod(0o700)


STATE_LISTS = st.lists(STATES, min_size=1, max_size=3)


@given(STATE_LISTS, st.sampled_from(PLACES), st.booleans(), st.booleans())
@settings(deadline=None)
def test_a_dry_run_announces_what_the_run_does(
    states: list[Any], places: Places, overwrite: bool, is_dry: bool
) -> None:
    assert_promises(states, places, overwrite, is_dry)


@pytest.mark.slow
@pytest.mark.exiftool
@given(STATE_LISTS, st.booleans())
@settings(deadline=None, max_examples=10)
def test_a_dry_run_of_embedding_announces_the_run(states: list[Any], overwrite: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", PATH)
        if shutil.which("exiftool") is None:
            pytest.skip("needs exiftool (Debian's libimage-exiftool-perl)")
        assert_promises(states, Places("digikam", embed=True), overwrite, is_dry=False)
