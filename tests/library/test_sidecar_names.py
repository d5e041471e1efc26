"""Which file beside a photo is its sidecar or text."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from samples import own_packet, save_photo, words_of_person, write_xmp, xmp_packet, xmp_texts

from captioner.library import Library, Places, Words, Written
from captioner.library.beside import ENDINGS

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
    library = Library(Places(program, text=program == "lightroom"))
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


def test_a_text_in_another_case_is_another_photos() -> None:
    os.rename("a.png", "A.png")
    Path("a.txt").write_text(MINE)
    if os.path.exists("A.txt"):
        pytest.skip("the file system ignores case")
    assert write("A.png").files["text"] == "A.txt"
    assert Path("a.txt").read_text() == MINE


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
    library = Library(Places("lightroom"))
    assert library.write("a.nef", CAT).problems == []
    assert library.write("a.png", CAT).files["xmp"] == "a.png.xmp"
    assert xmp_texts(Path("a.xmp"), "photoshop:SidecarForExtension") == ["NEF"]
    library = Library()
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


def test_photos_that_would_share_a_file_are_named_and_have_none() -> None:
    for name in ("a.jpg", "b.png", "b.jpg"):
        save_photo(Path(name))
    photos = ["a.png", "a.jpg", "b.png"]
    library = Library(Places("lightroom", text=True), photos=photos)
    problems = [library.write(photo, CAT).problems for photo in [*photos, "./b.png"]]
    assert problems[1:] == [
        [
            "a.txt would be of a.jpg and of a.png: rename one",
            "a.xmp would be of a.jpg and of a.png: rename one, or give --xmp-for digikam",
        ],
        [],
        [],
    ]
    assert len(problems[0]) == 2
    assert names(*ENDINGS) == {"b.xmp", "b.txt"}
    Path("a.jpg.xmp").write_bytes(xmp_packet(""))  # Leaves a.xmp to a.png.
    for program, expected in (("lightroom", "a.xmp"), ("darktable", "a.png.xmp")):
        library = Library(Places(program), photos=photos)
        assert library.write("a.png", CAT).files == {"xmp": expected}
        assert library.write("a.jpg", CAT).files == {"xmp": "a.jpg.xmp"}


def test_a_sidecar_of_another_photo_of_the_name_is_left_alone() -> None:
    save_photo(Path("a.jpg"))
    first, second = (replace(CAT, photo_digest=digest) for digest in "12")
    assert write("a.jpg", words=first).problems == []
    before = Path("a.xmp").read_bytes()
    for name, problem in zip(
        ("a.txt", "a.xmp"), write("a.png", words=second).problems, strict=True
    ):
        assert problem.startswith(f"{name} would be of a.png and of a.jpg: rename one")
    library = Library(dry_run=True, photo_digest={"a.jpg": "1", "a.png": "2"}.__getitem__)
    assert library.undo("a.png") == Written(would="lose")
    assert {*library.undo("a.jpg").words} == {"text", "xmp"}
    assert Path("a.xmp").read_bytes() == before
    os.unlink("a.jpg")
    assert write("a.png", words=second).problems == []  # It is the photo, edited or in its place.
    assert xmp_texts(Path("a.xmp"), "captioner:photo_digest") == ["2"]
    assert xmp_texts(before, "captioner:photo_digest") == ["1"]


def test_captioners_own_sidecar_of_a_photo_that_is_gone_is_removed() -> None:
    sidecars = {"own": own_packet(CAT), "mine": DESCRIBED, "edited": own_packet(CAT)}
    sidecars["edited"] = sidecars["edited"].replace(b"</rdf:RDF>", b"<!-- mine --></rdf:RDF>")
    sidecars["shared"] = sidecars["a"] = sidecars["own"]
    save_photo(Path("shared.jpg"))
    for name, content in sidecars.items():
        Path(f"{name}.xmp").write_bytes(content)
    library = Library()
    assert [library.remove_orphan(f"{name}.png") for name in sidecars] == [True, *[False] * 4]
    assert names() == {f"{name}.xmp" for name in sidecars} - {"own.xmp"}
