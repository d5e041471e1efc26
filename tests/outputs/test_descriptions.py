"""Captions in XMP and text files beside photos, and in photos by exiftool."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import CAPTION, Output, Refused

from captioner.caption.caption import Caption
from captioner.cli.main import main
from captioner.outputs.options import OutputOptions
from captioner.outputs.outputs import opened_outputs


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
    assert main([*text, "--json", "kept.json"]) == 0
    kept = "a.txt holds another text; --overwrite-descriptions replaces it"
    assert kept in capsys.readouterr().err
    (record_of_kept,) = json.loads(Path("kept.json").read_text())
    assert ("error" in record_of_kept, record_of_kept["files"]) == (False, {"text": "a.txt"})
    assert Path("a.txt").read_text() == "mine"
    assert main([*text, "--overwrite-descriptions"]) == 0
    said = "--overwrite-descriptions replaces 'mine'; a copy: a.txt.before"
    assert f"a.txt: {said}\n" in capsys.readouterr().err
    assert Path("a.txt").read_text() == f"{record['caption']}\n"


def written(photo: str, confidence: float | None, sure: bool, **options: Any) -> list[str]:
    """What a caption of "a dog" adds to the folder."""
    before = set(Path().iterdir())
    caption = Caption("a dog", ("a", "dog"), -2.0, (-1.0, -1.0), np.ones((2, 1, 1)))
    caption = replace(caption, confidence=confidence, sure=sure, name=photo, keywords=("dog",))
    with opened_outputs(OutputOptions(**options), {photo: photo}) as outputs:
        (record,) = outputs.write([caption])
    assert not record.error
    return sorted(str(path) for path in set(Path().iterdir()) - before)


BESIDE = {"xmp": "lightroom", "text": True}


def test_doubt_goes_along_and_can_be_left_out(folder: Path) -> None:
    for low in (0.4, None):
        assert written("a.png", low, False, **BESIDE, min_confidence=0.5) == []
    tables = {"csv": "o.csv", "json": "o.json", "parquet": "o.parquet", "jsonl": "o.jsonl"}
    assert written("a.png", 0.4, False, **tables, min_confidence=0.5) == []
    # A table from which a run resumes has it: it is finished all the same.
    resume = {**BESIDE, "jsonl": "r.jsonl", "resume": True, "min_confidence": 0.5}
    assert written("a.png", 0.4, False, **resume) == ["r.jsonl"]
    with opened_outputs(OutputOptions(**resume), {"a.png": "a.png"}) as outputs:
        assert outputs.finished == {"a.png"}

    assert written("a.png", 0.5, False, **BESIDE, min_confidence=0.5) == ["a.txt", "a.xmp"]
    assert written("b.png", 0.7, True, **BESIDE) == ["b.txt", "b.xmp"]
    doubtful, sure = (Path(name).read_text() for name in ("a.xmp", "b.xmp"))
    assert ">0.50<" in doubtful
    assert (doubtful.count(">dog<"), sure.count(">dog<"), doubtful.count("not sure")) == (2, 2, 0)
    written("b.png", 0.7, True, **BESIDE, keywords="none")
    assert ">dog<" not in Path("b.xmp").read_text()


def test_keywords_are_written_without_a_description(folder: Path, refused: Refused) -> None:
    written("a.png", 0.7, True, xmp="lightroom")
    assert ">a dog<" in Path("a.xmp").read_text()
    written("a.png", 0.7, True, xmp="lightroom", describe="none")
    assert (">a dog<" in (alone := Path("a.xmp").read_text()), ">dog<" in alone) == (False, True)
    Path("t.csv").write_text("image,caption\nb.png,A boat and a dog\n")
    assert main(["write", "t.csv", "--xmp", "--describe", "none"]) == 0
    assert (">boat<" in (alone := Path("b.xmp").read_text()), "A boat" in alone) == (True, False)
    sentence = "--describe none needs --xmp or --embed, and no --text"
    assert sentence in refused([*CAPTION, "a.png", "--xmp", "--text", "--describe", "none"])


def test_a_dry_run_says_what_it_would_write(folder: Path, capsys: Output) -> None:
    assert written("a.png", 0.7, True, **BESIDE, dry_run=True) == []
    said = ["a.txt would get 'a dog'", "a.xmp would get 'a dog', 'dog'"]
    assert sorted(capsys.readouterr().out.splitlines()) == said
