"""The erase test: which places, against brute force; what falls, with a model that is known."""

import csv
import html
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import refuses
from samples import CAPTION, Output

from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.erase import MOVES, attended, attended_least, central, erased_words, moved
from captioner.cli.main import main

WEIGHTS = np.array([[0.05, 0.05, 0.1, 0.0], [0.3, 0.25, 0.1, 0.0], [0.05, 0.1, 0.0, 0.0]])


def test_the_fewest_places_with_half_of_the_mass() -> None:
    assert np.argwhere(attended(WEIGHTS)).tolist() == [[1, 0], [1, 1]]
    assert attended(2 * WEIGHTS).sum() == 2
    assert attended(np.full((2, 3), 1 / 6)).sum() == 3
    one = np.zeros((3, 3))
    one[2, 1] = 1
    assert np.argwhere(attended(one)).tolist() == [[2, 1]]


def test_controls_have_as_many_places() -> None:
    places = attended(WEIGHTS)
    assert np.argwhere(central(places)).tolist() == [[1, 1], [1, 2]]
    least = attended_least(WEIGHTS, places)
    assert least.sum() == 2
    assert not WEIGHTS[least].any()


def test_moved_shapes_overlap_least_and_are_the_same_again() -> None:
    places = np.zeros((4, 5), bool)
    places[1:3, 1:4] = True  # 6 of 20 places: a shape elsewhere need not overlap.
    shapes = moved(places, MOVES, np.random.default_rng(0))
    assert len({shape.tobytes() for shape in shapes}) == MOVES
    for shape in shapes:
        assert shape.sum() == 6
        assert not (shape & places).any()
        rolls = [np.roll(places, shift, (0, 1)) for shift in np.ndindex(4, 5)]
        assert any(np.array_equal(shape, roll) for roll in rolls)
    again = moved(places, MOVES, np.random.default_rng(0))
    assert np.array_equal(shapes, again)


class Seer:
    """Sees the contrast of each quarter of a photo, and says "dog" of the first, "cat" of the last.

    The photo (B, 4) -> log-probabilities -1 / contrast, so that they fall without that quarter.
    """

    def annotations(self, photos: Image.Image | Sequence[Image.Image]) -> np.ndarray:
        several = [photos] if isinstance(photos, Image.Image) else photos
        grey = np.stack([np.asarray(photo.convert("L"), float) for photo in several])  # (B, 64, 64)
        quarters = grey.reshape(len(grey), 2, 32, 2, 32).transpose(0, 1, 3, 2, 4)
        return quarters.reshape(len(grey), 4, -1).std(axis=-1)  # (B, 4)

    def caption_annotations(
        self, annotations: np.ndarray, given: Sequence[Sequence[str]] | None = None
    ) -> list[Caption]:
        quarter = {"dog": 0, "cat": 3, "a": 1}
        captions = []
        for number, contrast in enumerate(annotations):
            words = given[number] if given else ["dog" if contrast[0] > contrast[3] else "cat"]
            scores = tuple(-10 / (1 + float(contrast[quarter[word]])) for word in words)
            captions.append(Caption(" ".join(words), tuple(words), sum(scores), scores, None))
        return captions


def captioned(maps: Sequence[int]) -> Caption:
    """`a dog cat` of a chequered photo, whose words' maps lie in these quarters."""
    chequers = np.indices((64, 64)).sum(0) % 8 < 4
    chequers[32:, 32:] = False
    chequers[32:, 32:][::4] = True  # Of less contrast than the first quarter.
    attention = np.zeros((3, 2, 2), np.float32)
    attention.reshape(3, 4)[range(3), maps] = 1
    photo = Image.fromarray((255 * chequers).astype(np.uint8)).convert("RGB")
    caption = Caption("a dog cat", ("a", "dog", "cat"), -1.0, (-0.5,) * 3, attention)
    return caption.of_photo(photo, (0.0, 0.0, 64.0, 64.0))


def test_a_word_falls_without_what_its_true_map_shows() -> None:
    dog, cat = erased_words(Seer(), captioned([1, 0, 3]))
    assert (dog.position, cat.position) == (1, 2)  # Function words are not tested.
    for word in (dog, cat):
        assert word.log_probability - word.without > 3 * (word.log_probability - word.elsewhere)
    assert (dog.instead, cat.instead) == ("cat", "dog")
    assert (dog.centre, dog.least) == (None, None)


def test_a_word_does_not_fall_without_what_a_false_map_shows() -> None:
    (dog, _) = erased_words(Seer(), captioned([1, 3, 0]), is_measured=True)
    assert dog.log_probability == pytest.approx(dog.without, rel=0.1)
    assert dog.log_probability - dog.elsewhere > 3 * (dog.log_probability - dog.without)
    assert dog.instead == ""
    assert dog.centre is not None
    assert dog.least is not None


def test_the_captioner_erases_in_search_and_given_captions(tiny_captioner: Captioner) -> None:
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), np.uint8))
    caption = tiny_captioner.erase(photo)
    assert caption.text == tiny_captioner.caption(photo).text
    given = tiny_captioner.erase(photo, "a dog runs")
    assert [given.words[each.position] for each in given.erased] == ["dog", "runs"]
    for word in given.erased:
        assert word.log_probability == pytest.approx(
            given.word_log_probabilities[word.position], abs=1e-4
        )
        assert math.exp(word.without) <= 1
        assert word.places.shape == tiny_captioner.map_shape


def test_a_list_of_photos_is_refused(tiny_captioner: Captioner) -> None:
    refuses("erase takes one photo, not several", tiny_captioner.erase, ["a.png"])


def test_what_is_said_instead_keeps_to_the_search(folder: Path, capsys: Output) -> None:
    assert main([*CAPTION, "a.png", "--erase", "--begin", "a dog", "--jsonl", "t.jsonl"]) == 0
    tested = json.loads(Path("t.jsonl").read_text())["erased"]
    assert tested
    assert all(word["instead"].startswith("a dog") for word in tested)


def test_the_command_writes_them_everywhere(folder: Path, capsys: Output) -> None:
    given = [*CAPTION, "a.png", "--given", "a dog runs", "--erase"]
    tables = ["--jsonl", "t.jsonl", "--csv", "t.csv", "--html", "t.html", "--overlay", "t.png"]
    assert main([*given, *tables]) == 0
    first, dog, runs = capsys.readouterr().out.splitlines()
    assert first.startswith("a dog runs  (log-probability")
    assert dog.startswith("  dog: ")
    assert "without what its map shows" in runs
    tested = json.loads(Path("t.jsonl").read_text())["erased"]
    assert [word["position"] for word in tested] == [1, 2]
    (row,) = csv.DictReader(Path("t.csv").read_text().splitlines())
    assert json.loads(row["erased"]) == tested
    assert '"erased":[[{"position":1,' in html.unescape(Path("t.html").read_text())
    assert main(["write", "t.csv", "--xmp"]) == 0
    assert main([*CAPTION, "a.png", "--erase", "--language", "de"]) == 2
    assert "--erase tests English words" in capsys.readouterr().err


def test_a_data_set_is_measured(folder: Path, tiny_model: Path, capsys: Output) -> None:
    command = ["maps", str(tiny_model), "--images", ".", "--erase", "--csv", "w.csv"]
    assert main([*command, "--json", "w.json"]) == 0
    assert "of the words fall further by their map" in capsys.readouterr().out
    scores = json.loads(Path("w.json").read_text())["erased"]
    rows = list(csv.DictReader(Path("w.csv").read_text().splitlines()))
    falls = [float(row["fall_map"]) for row in rows if row["fall_map"]]
    assert scores["words"] == len(falls)
    assert scores["means"]["map"] == pytest.approx(np.mean(falls))
    low, high = scores["intervals"]["map"]
    assert low <= np.mean(falls) <= high
