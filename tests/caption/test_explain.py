"""Given captions: scored and mapped as those that the search finds."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from samples import CAPTION, photo, save_photo

import captioner
from captioner.caption.captioner import Captioner
from captioner.cli.main import main
from captioner.errors import UserError


def test_a_found_caption_is_explained_as_it_was_found(tiny_captioner: Captioner) -> None:
    photos = [photo(seed) for seed in range(3)]
    found = tiny_captioner.caption(photos)
    explained = tiny_captioner.explain(photos, [each.text for each in found], batch_size=2)
    for one, other in zip(explained, found, strict=True):
        assert (one.words, one.given, one.confidence) == (other.words, True, None)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-6)
        assert one.word_log_probabilities == pytest.approx(other.word_log_probabilities, abs=1e-6)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-6)
        assert one.panels().width == other.panels().width


def test_text_is_read_as_in_training_and_unknown_words_are_named(
    tiny_captioner: Captioner, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="does not know zebra: scored as its unknown-word token"):
        both = tiny_captioner.explain(photo(), ["A Dog RUNS.", "a dog, the zebra"])
    assert [each.words for each in both] == [("a", "dog", "runs"), ("a", "dog", "the", "zebra")]
    one = tiny_captioner.explain(photo(), "a dog runs")
    assert one.log_probability == pytest.approx(both[0].log_probability, abs=1e-6)
    one.overlay(tmp_path / "maps.png")
    assert Image.open(tmp_path / "maps.png").width > 200


@pytest.mark.parametrize(
    ("photos", "captions", "named"),
    [
        (photo(), "...", "has no words"),
        ([photo(), photo(1)], ["a dog"], "1 captions are given for 2 photos"),
        ("nowhere.jpg", "a dog", "nowhere.jpg does not exist"),
    ],
)
def test_bad_captions_and_photos_are_named(
    tiny_captioner: Captioner, photos: object, captions: str, named: str
) -> None:
    with pytest.raises(UserError, match=named):
        tiny_captioner.explain(photos, captions)
    with pytest.raises(UserError, match="'a young boy' has no words, or is no list of them"):
        tiny_captioner.teacher_forced(tiny_captioner.annotations(photo()), ["a young boy"])


def test_the_command_draws_and_marks_a_given_caption(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    save_photo(Path("a.png"))
    given = [*CAPTION, "a.png", "--model", str(tiny_model), "--given", "a dog runs"]
    assert main([*given, "--overlay", "given.png", "--jsonl", "given.jsonl", "--xmp"]) == 0
    assert "a dog runs  (log-probability -" in capsys.readouterr().out
    (record,) = map(json.loads, Path("given.jsonl").read_text().splitlines())
    assert (record["caption"], record["by"], "confidence" in record) == (
        "a dog runs",
        "person",
        False,
    )
    assert "a dog runs" in Path("a.xmp").read_text()
    assert main([*given, "--language", "de"]) == 2


def test_photos_are_read_alike_everywhere(tiny_captioner: Captioner, tmp_path: Path) -> None:
    lying = photo(0, (90, 60))
    exif = Image.Exif()
    exif[0x0112] = 6
    lying.save(tmp_path / "lying.jpg", exif=exif)
    path = str(tmp_path / "lying.jpg")
    vectors = [tiny_captioner.annotations(each) for each in (path, [path], Image.open(path))]
    for other in vectors[1:]:
        np.testing.assert_allclose(vectors[0], other, atol=1e-5)
    upright = captioner.load_image(path)
    assert upright.size == (60, 90)
    search = captioner.SearchOptions(beam=2, n_best=2, maximum_length=4)
    assert len(tiny_captioner.caption(path, search=search).alternatives) == 1
