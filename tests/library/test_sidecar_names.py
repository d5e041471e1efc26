"""Which file beside a photo is its sidecar or text, and how they follow a photo."""

import os
from pathlib import Path

import pytest
from samples import own_packet, save_photo, words_of_person, write_xmp, xmp_packet, xmp_texts

from captioner.library import SHARED, Library, Places, Words, Written

MINE = "Market day"
DESCRIBED = xmp_packet(f"<dc:description>{MINE}</dc:description>")
RAW = DESCRIBED.replace(
    b"<rdf:Description ",
    b"<rdf:Description xmlns:photoshop='http://ns.adobe.com/photoshop/1.0/' "
    b"photoshop:SidecarForExtension='NEF' ",
)
CAT = Words("a cat", ["cat"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_photo(Path("a.png"))


def of(suffix: str) -> bytes:
    """The sidecar of a file with another suffix, which it names in an element."""
    name = "photoshop:SidecarForExtension"
    return RAW.replace(f"{name}='NEF' ".encode(), b"").replace(
        b"</rdf:Description>", f"<{name}>{suffix}</{name}></rdf:Description>".encode()
    )


def names(*endings: str) -> set[str]:
    return {name for name in os.listdir() if name.lower().endswith(endings or (".xmp",))}


def write(photo: str = "a.png", program: str = "lightroom", words: Words = CAT) -> Written:
    with Library(Places(program, text=program == "lightroom")) as library:
        return library.write(photo, words)


@pytest.mark.parametrize("name", ["a.XMP", "A.xmp", "a.Xmp", "A.PNG.XMP", "a.png.xMP"])
def test_a_sidecar_is_found_and_merged_in_any_case(name: str) -> None:
    Path(name).write_bytes(DESCRIBED)
    assert words_of_person(Path("a.png")) == MINE
    for program in ("lightroom", "digikam")[: 1 + ("PNG" in name.upper())]:
        done = write(program=program)
        assert done.kept == MINE
        assert f"a.png keeps its description '{MINE}'; " in done.notes[0]
        assert names() == {name}
    Path(name).write_bytes(xmp_packet("<dc:title>1</dc:title>"))
    assert write().files["xmp"] == name
    assert names() == {name}
    assert xmp_texts(Path(name), "dc:description") == ["a cat"]


def test_a_text_is_found_in_any_case() -> None:
    os.rename("a.png", "IMG_1.PNG")
    Path("IMG_1.TXT").write_text(MINE)
    done = write("IMG_1.PNG")
    assert (done.kept, done.files["text"]) == (MINE, "IMG_1.TXT")
    assert names(".txt") == {"IMG_1.TXT"}


def test_accents_are_compared_as_macos_writes_them() -> None:
    os.rename("a.png", "Gru\u0308n.png")
    Path("gr\u00fcn.XMP").write_bytes(DESCRIBED)
    assert words_of_person(Path("Gru\u0308n.png")) == MINE


def test_photos_that_differ_in_case_keep_their_own_sidecars() -> None:
    Path("A.png").write_bytes(Path("a.png").read_bytes())
    Path("a.XMP").write_bytes(DESCRIBED)
    if len(os.listdir()) < 3:
        pytest.skip("the file system ignores case")
    assert words_of_person(Path("A.png")) == ""
    write("A.png")
    assert names() == {"A.xmp", "a.XMP"}


def test_all_spellings_are_read_and_the_exact_one_is_written() -> None:
    Path("a.XMP").write_bytes(DESCRIBED)
    write_xmp(Path("a.xmp"), CAT)
    write()
    assert Path("a.XMP").read_bytes() == DESCRIBED
    assert xmp_texts(Path("a.xmp"), "dc:description") == []


@pytest.mark.parametrize("content", [RAW, of("cr2"), of("JPG"), RAW.decode().encode("utf-16")])
def test_the_sidecar_of_a_raw_file_is_not_the_photos(content: bytes) -> None:
    Path("a.xmp").write_bytes(content)
    assert words_of_person(Path("a.png")) == ""
    for _ in range(2):
        assert write().files["xmp"] == "a.png.xmp"
    assert Path("a.xmp").read_bytes() == content


def test_a_sidecar_may_name_the_photos_own_suffix(tmp_path: Path) -> None:
    for name, suffix in (("a.jpeg", "JPG"), ("b.TIF", "tiff"), ("c.png", "PNG")):
        save_photo(Path(name)).with_suffix(".xmp").write_bytes(of(suffix))
        assert words_of_person(tmp_path / name) == MINE


def test_a_raw_file_never_fails_and_has_the_short_name() -> None:
    Path("a.nef").write_bytes(b"damaged")
    assert write("a.nef").problems == []
    assert xmp_texts(Path("a.xmp"), "photoshop:SidecarForExtension") == ["NEF"]
    assert write("a.png").files["xmp"] == "a.png.xmp"
    with Library() as library:
        assert library.undo("a.nef").problems == []
    assert names() == {"a.png.xmp"}


@pytest.mark.parametrize("name", ["notes.txt", "notes.md", "empty.jpg"])
def test_what_is_no_photo_gets_nothing(name: str) -> None:
    Path(name).write_text("" if name == "empty.jpg" else MINE)
    before = {path: Path(path).read_bytes() for path in os.listdir()}
    (problem,) = write(name).problems
    assert name in problem
    assert {path: Path(path).read_bytes() for path in os.listdir()} == before
    assert write("gone.jpg").problems


def test_photos_that_share_a_sidecar_are_named_and_have_none() -> None:
    for name in ("a.jpg", "b.png"):
        save_photo(Path(name))
    photos = ["a.png", "b.png", "a.jpg", "./b.png"]
    with Library(Places("lightroom"), photos=photos) as library:
        assert library.notes == [
            "1 file not written: it would be of several photos, such as a.xmp of a.png and of "
            "a.jpg; rename one, or give --xmp-for digikam"
        ]
        problems = [library.write(photo, CAT).problems for photo in photos]
    assert problems == [[SHARED], [], [SHARED], []]
    assert names() == {"b.xmp"}
    Path("a.jpg.xmp").write_bytes(xmp_packet(""))  # Leaves a.xmp to a.png.
    with Library(Places("lightroom"), photos=photos) as library:
        assert [library.write(photo, CAT).files["xmp"] for photo in photos[::-1]] == [
            "b.xmp", "a.jpg.xmp", "b.xmp", "a.xmp"
        ]  # fmt: skip
    with Library(Places("darktable"), photos=photos) as library:
        assert library.notes == []


def test_sidecars_and_texts_follow_photos_that_swap_or_are_renumbered() -> None:
    for number in range(1, 5):
        save_photo(Path(f"{number}.png"), number)
        Path(f"{number}.xmp").write_bytes(xmp_packet(f"<dc:description>{number}</dc:description>"))
        Path(f"{number}.txt").write_text(f"{number}")
    Path("4.xmp").write_bytes(own_packet(CAT))
    moves = {"1.png": "2.png", "2.png": "1.png", "3.png": "4.png", "a.png": "new/b.png"}
    Path("a.png.xmp").write_bytes(DESCRIBED)
    with Library(dry_run=True) as library:
        assert library.follow(moves) == []
    assert Path("1.txt").read_text() == "1"
    with Library() as library:
        assert library.follow(moves) == [
            f"4.{kind} is of a photo that is gone; it is 4.{kind}.orphaned now"
            for kind in ("xmp", "txt")
        ]
    found = {name: Path(name).read_text() for name in names(".txt")}
    assert found == {"1.txt": "2", "2.txt": "1", "4.txt": "3"}
    assert {name: xmp_texts(Path(name), "dc:description") for name in names()} == {
        "1.xmp": ["2"], "2.xmp": ["1"], "4.xmp": ["3"]
    }  # fmt: skip
    assert Path("new/b.png.xmp").read_bytes() == DESCRIBED
    assert Path("4.txt.orphaned").read_text() == "4"
    assert names(".moving") == set()


def test_a_killed_following_goes_on() -> None:
    for name in "bc":
        Path(f"{name}.txt").write_text(name)
    os.rename("b.txt", "b.txt.moving")  # A kill before either had its place,
    with Library() as library:
        library.follow({"b.png": "c.png", "c.png": "b.png"})
        assert (Path("b.txt").read_text(), Path("c.txt").read_text()) == ("c", "b")
        os.rename("c.txt", "b.txt.moving")  # and before the second.
        library.follow({"b.png": "c.png", "c.png": "b.png"})
    assert (Path("b.txt").read_text(), Path("c.txt").read_text()) == ("c", "b")


def test_a_sidecar_of_two_photos_does_not_follow_one() -> None:
    save_photo(Path("a.jpg"))
    Path("a.xmp").write_bytes(DESCRIBED)
    with Library() as library:
        assert library.follow({"a.png": "b.png"}) == []
    assert names() == {"a.xmp"}


def test_captioners_own_sidecar_of_a_photo_that_is_gone_is_removed() -> None:
    sidecars = {"own": own_packet(CAT), "mine": DESCRIBED, "edited": own_packet(CAT)}
    sidecars["edited"] = sidecars["edited"].replace(b"</rdf:RDF>", b"<!-- mine --></rdf:RDF>")
    sidecars["shared"] = sidecars["a"] = sidecars["own"]
    save_photo(Path("shared.jpg"))
    for name, content in sidecars.items():
        Path(f"{name}.xmp").write_bytes(content)
    with Library() as library:
        assert [library.remove_orphan(f"{name}.png") for name in sidecars] == [True, *[False] * 4]
    assert names() == {f"{name}.xmp" for name in sidecars} - {"own.xmp"}
