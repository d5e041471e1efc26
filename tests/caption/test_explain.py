"""Given captions: scored and mapped as those that the search finds."""

import html
import json
from pathlib import Path

import pytest
from PIL import Image
from samples import CAPTION, Output, photo

from captioner.caption.captioner import Captioner
from captioner.cli.main import main
from captioner.errors import UserError
from captioner.text.tokenizer import tokenize


def test_text_is_read_as_in_training_and_unknown_words_are_named(
    tiny_captioner: Captioner, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="does not know zebra: scored as its unknown-word token"):
        both = tiny_captioner.explain(photo(), ["A Dog RUNS.", "a dog, the zebra"])
    assert [each.words for each in both] == [("a", "dog", "runs"), ("a", "dog", "the", "zebra")]
    one = tiny_captioner.explain(photo(), "a dog runs")
    assert (one.given, one.confidence) == (True, None)
    assert one.log_probability == pytest.approx(both[0].log_probability, abs=1e-6)
    one.overlay(tmp_path / "maps.png")
    assert Image.open(tmp_path / "maps.png").width > 200


TYPED = "Anna's dog (left) runs —\n in New York!"
ON_A_LINE = "Anna's dog (left) runs — in New York!"


def test_a_given_sentence_stays_as_it_was_typed(folder: Path, capsys: Output) -> None:
    outputs = ["--jsonl", "t.jsonl", "--csv", "t.csv", "--text", "--xmp", "--html", "t.html"]
    given = [*CAPTION, "a.png", "--given", TYPED, *outputs, "--overlay", "t.png"]
    assert main(given) == 0
    assert capsys.readouterr().out.startswith(f"{ON_A_LINE}  (log-probability -")
    assert Path("a.txt").read_text(encoding="utf-8") == f"{ON_A_LINE}\n"
    record = json.loads(Path("t.jsonl").read_text(encoding="utf-8"))
    assert (record["caption"], record["by"]) == (ON_A_LINE, "person")
    assert "confidence" not in record
    assert Image.open("t.png").width > 200
    assert main([*given, "--overwrite", "--language", "de"]) == 2
    assert record["words"] == tokenize(TYPED)  # Of the maps.
    assert record["keywords"] == ["Anna", "dog", "New York"]
    assert ON_A_LINE in Path("t.csv").read_text(encoding="utf-8")
    assert ON_A_LINE in Path("a.xmp").read_text(encoding="utf-8")
    page = Path("t.html").read_text(encoding="utf-8")
    assert page.count(f'alt="{html.escape(ON_A_LINE)}"') == 1


def test_typed_sentences_in_python(tiny_captioner: Captioner) -> None:
    given = tiny_captioner.explain([photo(), photo(1)], ["A dog RUNS.", "red\x1b water\ud800"])
    assert [each.text for each in given] == ["A dog RUNS.", "red water\ufffd"]
    assert [each.keywords for each in given] == [("dog",), ("water",)]
    assert given[0].with_keywords("all").keywords == ("dog", "RUNS")
    vectors = tiny_captioner.annotations(photo())
    words = tiny_captioner.caption_annotations(vectors, given=[["a", "dog"]])
    assert [each.text for each in words] == ["a dog"]


@pytest.mark.parametrize(
    ("photos", "captions", "named"),
    [
        (photo(), "...", r"the given caption '\.\.\.' has no words"),
        ([photo(), photo(1)], ["a dog"], "1 captions are given for 2 photos"),
        ("nowhere.jpg", "a dog", "nowhere.jpg does not exist"),
    ],
)
def test_bad_captions_and_photos_are_named(
    tiny_captioner: Captioner, photos: object, captions: str, named: str
) -> None:
    with pytest.raises(UserError, match=named):
        tiny_captioner.explain(photos, captions)
    vectors = tiny_captioner.annotations(photo())
    with pytest.raises(UserError, match="'a young boy' has no words, or is no list of them"):
        tiny_captioner.caption_annotations(vectors, given=["a young boy"])
