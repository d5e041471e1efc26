"""Sidecars and texts follow a photo that was renamed: by its digest, once, also after a kill."""

import os
from pathlib import Path

import pytest
from samples import Patch, interrupted_after, save_photo, write_xmp, xmp_packet, xmp_texts

from captioner import library
from captioner.library import Words

MINE = xmp_packet("<dc:description>mine</dc:description>")
TRADE, CHAIN = {"a": "b", "b": "a"}, {"a": "b", "b": "c"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate("abc"):
        save_photo(Path(f"{name}.png"), number)
        write_xmp(Path(f"{name}.xmp"), words_of(name))
        Path(f"{name}.txt").write_text(f"text of {name}")


def words_of(name: str) -> Words:
    return Words(f"a {name}", photo_digest=f"digest of {name}")


def rename(names: dict[str, str], *endings: str) -> None:
    """Rename files, also to each other's names."""
    for ending in endings:
        for name in names:
            os.rename(f"{name}{ending}", f"{name}.temporary")
        for name, new in names.items():
            os.rename(f"{name}.temporary", f"{new}{ending}")


def follow(names: dict[str, str]) -> list[str]:
    moved = [(f"{old}.png", f"{new}.png", words_of(old)) for old, new in names.items()]
    return library.follow(moved)


def found() -> dict[str, str]:
    """The words in all files beside photos."""
    texts = {f"{path}": path.read_text() for path in Path().rglob("*.txt*") if path.is_file()}
    sidecars = {f"{path}": xmp_texts(path, "dc:description") for path in Path().rglob("*.xmp*")}
    return texts | {name: "".join(words) for name, words in sidecars.items()}


def both(**owners: str) -> dict[str, str]:
    """Sidecars and texts of photos, by names."""
    texts = {f"{name}.txt": f"text of {owner}" for name, owner in owners.items()}
    return texts | {f"{name}.xmp": f"a {owner}" for name, owner in owners.items()}


def test_what_another_program_renamed_is_at_its_place() -> None:
    for name in "ab":
        Path(f"{name}.txt").write_text(f"a {name}\n")
    rename(TRADE, ".png", ".xmp")  # As digiKam does, which knows no texts.
    for _ in range(2):
        assert follow(TRADE) == []
        assert found() == both(a="b", b="a", c="c") | {"a.txt": "a b\n", "b.txt": "a a\n"}


def test_a_persons_caption_is_told_from_the_models_which_other_photos_have_too() -> None:
    Path("a.txt").write_text("Anna\n")
    Path("b.txt").write_text("a dog\n")
    rename(TRADE, ".png", ".xmp")
    anna = Words("Anna", by_person=True, photo_digest="digest of a", own_texts=["a dog"])
    dog = Words("a dog", photo_digest="digest of b")
    for _ in range(2):
        library.follow([("a.png", "b.png", anna), ("b.png", "a.png", dog)])
        assert [Path(name).read_text() for name in ("b.txt", "a.txt")] == ["Anna\n", "a dog\n"]


def test_a_sidecar_whose_name_has_two_endings_follows_once() -> None:
    os.rename("a.png", "new.txt.png")
    assert library.follow([("a.png", "new.txt.png", words_of("a"))]) == []
    assert sorted(map(str, Path().glob("new*"))) == ["new.txt.png", "new.txt.txt", "new.txt.xmp"]


def test_a_file_in_the_way_gets_a_free_name() -> None:
    Path("c.xmp.orphaned").write_bytes(MINE)
    os.unlink("c.png")
    rename({"b": "c", "a": "b"}, ".png")
    assert follow(CHAIN) == [
        "c.txt is of another photo; it is c.txt.orphaned now",
        "c.xmp is of another photo; it is c.xmp.orphaned2 now",
    ]
    assert found() == both(b="a", c="b") | {
        "c.txt.orphaned": "text of c", "c.xmp.orphaned": "mine", "c.xmp.orphaned2": "a c"
    }  # fmt: skip


@pytest.mark.parametrize("kill", range(1, 15))
@pytest.mark.parametrize("names", [TRADE, CHAIN])
def test_a_run_after_a_kill_goes_on(kill: int, names: dict[str, str], monkeypatch: Patch) -> None:
    Path("a.txt.before").write_text("copy of a")
    Path("a.txt.before2").write_text("copy of a, too")
    Path("b.XMP").write_bytes(Path("b.xmp").read_bytes())
    os.unlink("b.xmp")
    os.unlink("c.png")
    rename(names if names is TRADE else {"b": "c", "a": "b"}, ".png")
    with interrupted_after(kill, monkeypatch):
        try:
            follow(names)
        except KeyboardInterrupt:
            assert kill < 14
    follow(names)
    new = names["b"]
    copies = {"b.txt.before": "copy of a", "b.txt.before2": "copy of a, too"}
    expected = both(b="a") | copies | {f"{new}.txt": "text of b", f"{new}.xmp": "a b"}
    assert expected.items() <= found().items()
    assert not {*Path().glob("*.moving")}


def test_a_sidecar_without_a_digest_follows_only_to_a_free_place_from_a_free_name() -> None:
    for name in ("a.xmp", "b.png.xmp"):
        Path(name).write_bytes(MINE)
    save_photo(Path("a.jpg"))
    Path("new").mkdir()
    rename({"a": "new/a", "b": "new/b"}, ".png")
    names = {"a": "new/a", "b": "new/b"}
    for place in ("b.png.xmp", "new/b.png.xmp"):
        assert found()[place] == "mine"
        follow(names)
    assert found()["a.xmp"] == "mine"  # Of a.jpg.
    os.unlink("a.jpg")
    follow(names)
    assert found()["new/a.xmp"] == "mine"
    names = {"new/a": "new/b", "new/b": "new/a"}
    rename(names, ".png")
    follow(names)
    assert found()["new/a.xmp"] == "mine"  # It may have been renamed with its photo.


def test_a_text_of_which_nothing_says_whose_it_is_stays_and_is_named() -> None:
    os.unlink("a.xmp")
    Path("new").mkdir()
    rename({"a": "new/a"}, ".png")
    said = ["a.txt stays: nothing says that it is of new/a.png, which was a.png"]
    assert follow({"a": "new/a"}) == said
    write_xmp(Path("new/a.xmp"), words_of("a"))  # Which went along, as with digiKam.
    assert follow({"a": "new/a"}) == said
    os.unlink("new/a.xmp")
    Path("a.txt").write_text("a a\n")
    Path("a.txt.before").write_text("copy of a")
    assert follow({"a": "new/a"}) == []
    assert found() == both(b="b", c="c") | {"new/a.txt": "a a\n", "new/a.txt.before": "copy of a"}


def test_a_file_that_cannot_be_renamed_is_named_and_keeps_no_other(monkeypatch: Patch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(30, "Read-only file system")

    os.unlink("c.xmp")
    rename({"a": "c"}, ".png")
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", refuse)
        said = "a.xmp cannot be renamed to c.xmp: Read-only file system"
        assert follow({"a": "c"})[-1] == said
    os.unlink("a.txt")
    Path("a.txt").mkdir()
    assert "a.txt" in follow({"a": "c"})[0]
    assert found()["c.xmp"] == "a a"
