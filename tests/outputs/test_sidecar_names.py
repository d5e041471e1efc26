"""Which file beside a photo is its sidecar, and whose the words and keywords in it are."""

import os
from pathlib import Path

import pytest
from samples import CAPTION, Output, write_xmp, xmp_packet

from captioner.cli.main import main
from captioner.data.sidecars import sidecars, words_of_person
from captioner.data.xmp import Description, XmpPacket

MINE = "Market day"
DESCRIBED = xmp_packet(f"<dc:description>{MINE}</dc:description>")
RAW = xmp_packet(f"<dc:description>{MINE}</dc:description>").replace(
    b"<rdf:Description ",
    b"<rdf:Description xmlns:photoshop='http://ns.adobe.com/photoshop/1.0/' "
    b"photoshop:SidecarForExtension='NEF' ",
)


def of(suffix: str) -> bytes:
    """The sidecar of a file with another suffix, which it names in an element."""
    name = "photoshop:SidecarForExtension"
    return RAW.replace(f"{name}='NEF' ".encode(), b"").replace(
        b"</rdf:Description>", f"<{name}>{suffix}</{name}></rdf:Description>".encode()
    )


def sidecar_names() -> set[str]:
    return {name for name in os.listdir() if name.lower().endswith(".xmp")}


@pytest.mark.parametrize("name", ["a.XMP", "A.xmp", "a.Xmp", "A.PNG.XMP", "a.png.xMP"])
def test_a_sidecar_is_found_and_merged_in_any_case(name: str, folder: Path, capsys: Output) -> None:
    Path(name).write_bytes(DESCRIBED)
    assert words_of_person(Path("a.png")) == MINE
    for options in (["--xmp"], ["--xmp-for", "digikam"])[: 1 + ("PNG" in name.upper())]:
        main([*CAPTION, "a.png", *options])
        assert f"a.png keeps its description '{MINE}'" in capsys.readouterr().err
        assert sidecar_names() == {name}
    Path(name).write_bytes(xmp_packet("<dc:title>1</dc:title>"))
    assert main([*CAPTION, "a.png", "--xmp"]) == 0
    assert sidecar_names() == {name}
    assert XmpPacket(Path(name).read_bytes(), name).own_texts("description")


def test_a_text_is_found_in_any_case(folder: Path, capsys: Output) -> None:
    os.rename("a.png", "IMG_1.PNG")
    Path("IMG_1.TXT").write_text(MINE)
    assert main([*CAPTION, "IMG_1.PNG", "--text"]) == 0
    assert "IMG_1.TXT holds another text" in capsys.readouterr().err
    assert not Path("IMG_1.txt").exists()


def test_accents_are_compared_as_macos_writes_them(folder: Path) -> None:
    os.rename("a.png", "Gru\u0308n.png")
    Path("gr\u00fcn.XMP").write_bytes(DESCRIBED)
    assert words_of_person(Path("Gru\u0308n.png")) == MINE


def test_photos_that_differ_in_case_keep_their_own_sidecars(folder: Path) -> None:
    Path("A.png").write_bytes(Path("a.png").read_bytes())
    Path("a.XMP").write_bytes(DESCRIBED)
    if len(os.listdir()) < 5:
        pytest.skip("the file system ignores case")
    assert words_of_person(Path("A.png")) == ""
    assert main([*CAPTION, "A.png", "--xmp"]) == 0
    assert sidecar_names() == {"A.xmp", "a.XMP"}


def test_all_spellings_are_read_and_the_exact_one_is_written(folder: Path) -> None:
    Path("a.XMP").write_bytes(DESCRIBED)
    write_xmp(Path("a.xmp"), Description("a cat", ["cat"]))
    main([*CAPTION, "a.png", "--xmp"])
    assert Path("a.XMP").read_bytes() == DESCRIBED
    assert XmpPacket(Path("a.xmp").read_bytes(), "it").descriptions == []


@pytest.mark.parametrize("content", [RAW, of("cr2"), of("JPG"), RAW.decode().encode("utf-16")])
def test_the_sidecar_of_a_raw_file_is_not_the_photos(
    content: bytes, folder: Path, capsys: Output
) -> None:
    Path("a.xmp").write_bytes(content)
    assert words_of_person(Path("a.png")) == ""
    for _ in range(2):
        assert main([*CAPTION, "a.png", "--xmp"]) == 0
        assert sidecar_names() == {"a.xmp", "a.png.xmp"}
    assert Path("a.xmp").read_bytes() == content
    assert XmpPacket(Path("a.png.xmp").read_bytes(), "it").own_texts("description")


def test_a_sidecar_may_name_the_photos_own_suffix(tmp_path: Path) -> None:
    for name, suffix in (("a.jpeg", "JPG"), ("b.TIF", "tiff"), ("c.png", "PNG")):
        sidecar = (tmp_path / name).with_suffix(".xmp")
        sidecar.write_bytes(of(suffix))
        assert sidecars(tmp_path / name)[0] == [sidecar]
        assert words_of_person(tmp_path / name) == MINE


def test_a_persons_keyword_in_another_case_is_not_doubled(tmp_path: Path) -> None:
    path = tmp_path / "a.xmp"
    words = "<rdf:Bag><rdf:li>Cat</rdf:li><rdf:li>STRASSE</rdf:li></rdf:Bag>"
    path.write_bytes(xmp_packet(f"<dc:subject>{words}</dc:subject>"))
    for _ in range(2):
        write_xmp(path, Description("a cat", ["cat", "straße", "dog"]))
        packet = XmpPacket(path.read_bytes(), "it")
        assert packet.own_texts("subject") == ["dog"]
        assert ">cat<" not in path.read_text(encoding="utf-8")
    packet.merge(Description("a cat", ["cat", "dog"]), iptc_keywords=["Dog"])
    assert packet.own_texts("subject") == []
