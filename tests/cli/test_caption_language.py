"""`captioner caption --language`: captions in German and French, in every output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import Output, Patch, Refused, make_captioner, save_photo
from small_translators import make_translator

from captioner.caption import save_model
from captioner.cli.main import main
from captioner.translate import save_translator


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working folder with a captioner of a few words and two photos."""
    monkeypatch.chdir(tmp_path)
    save_model(make_captioner(words=["a", "dog", "man", "red", "water"]), tmp_path / "model")
    for number, name in enumerate(("a.png", "b.png")):
        save_photo(tmp_path / name, number)
    return tmp_path


def caption(*arguments: str) -> int:
    return main(["caption", *arguments, "--model", "model", "--device", "cpu"])


@pytest.mark.parametrize("language", ["de", "fr"])
def test_captions_are_translated_in_every_output(
    language: str, folder: Path, capsys: Output
) -> None:
    outputs = ("--overlay", "maps/", "--html", "page.html", "--xmp", "--text")
    translated = ("--language", language, "--n-best", "2", "--json", "found.json", *outputs)
    assert caption("a.png", "b.png", *translated) == 0
    lines = capsys.readouterr().out
    assert caption("a.png", "b.png", "--quiet", "--n-best", "2", "--json", "en.json") == 0
    english = json.loads(Path("en.json").read_text())
    found = json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert len(found) == len(english) == 2
    for record, of in zip(found, english, strict=True):
        name, text = record["image"], record["caption"]
        versions = zip([record, *record["alternatives"]], [of, *of["alternatives"]], strict=True)
        for version, original in versions:
            assert version["language"] == language
            assert version["original"]["words"] == original["words"]
            assert version["score"] == original["score"]
            assert version["caption"] == " ".join(version["words"])
            assert version["caption"] in lines
        assert Path(name).with_suffix(".txt").read_text(encoding="utf-8") == f"{text}\n"
        sidecar = Path(name).with_suffix(".xmp").read_text(encoding="utf-8")
        assert f'xml:lang="{language}">{text}<' in sidecar
        assert 'xml:lang="en"' not in sidecar
        assert (Path("maps") / name).is_file()
        page = Path("page.html").read_text(encoding="utf-8")
        assert all(part in page for part in (f'lang="{language}"', *record["words"]))


def test_a_language_may_have_a_region_and_english_is_the_caption_itself(folder: Path) -> None:
    found = []
    for options in ([], *(["--language", tag] for tag in ("EN", "FR", "fr-ca"))):
        assert caption("a.png", *options, "--json", "o.json", "--overwrite") == 0
        found += json.loads(Path("o.json").read_text(encoding="utf-8"))
    plain, english, french, canadian = found
    assert plain == english
    assert plain["caption"] != french["caption"] == canadian["caption"]
    assert [each.get("language") for each in found] == [None, None, "fr", "fr-CA"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--language", "it"), "--language it needs a --translator; the package has de, fr"),
        (("--language", "de_DE"), "--language 'de_DE' is not a language tag such as de"),
        (("--translator", "plain"), "--translator has no meaning without --language"),
        (("--language", "En", "--translator", "plain"), "no meaning with --language en"),
        (("--language", "it", "--translator", "plain"), "need a translator with attention"),
    ],
)
def test_what_cannot_be_translated_is_refused(
    options: tuple[str, ...], said: str, folder: Path, refused: Refused
) -> None:
    save_translator(make_translator(["A man sees a dog."], "plain"), "plain")
    assert said in refused(["caption", "a.png", "--model", "model", *options])
