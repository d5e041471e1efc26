"""Attention maps measured from end to end, and that they are measured and drawn for their words."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from captioner.attention.memory import Memory
from captioner.caption.captioner import Captioner
from captioner.data.example import Example, ImageId
from captioner.data.instances import Target
from captioner.decoding.options import SearchOptions
from captioner.decoding.protocol import Step
from captioner.errors import UserError
from captioner.evaluation.map_scores import grounded_maps, grounded_table, score_maps, word_maps
from captioner.render.animation import frames
from captioner.render.page import PageCaption, PageItem
from captioner.render.save import save_word_images
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder

WORDS = ("a", "red", "dog", "by", "water")

# Maps of two rows and four columns over a photo in which a cell is a pixel.
SIZE = (4, 2)
REGION = (0.0, 0.0, 4.0, 2.0)


def peak(place: int, weight: float = 1.0) -> np.ndarray:
    weights = np.full((2, 4), (1 - weight) / 7)
    weights.flat[place] = weight
    return weights


def pixel(*places: int) -> Target:
    boxes = [(x, y, x + 1, y + 1) for y, x in (divmod(place, 4) for place in places)]
    return Target(SIZE, tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in boxes))


TARGETS = [None, pixel(1, 2), pixel(1, 2), None, pixel(7)]
MAPS = np.stack([peak(0), peak(1, 0.8), peak(2, 0.7), peak(6), peak(7, 0.9)])


def test_a_caption_worked_by_hand() -> None:
    found = word_maps("x.jpg", WORDS, MAPS, TARGETS, SIZE, REGION)
    assert [(word.position, word.word) for word in found] == list(enumerate(WORDS))
    assert [word.target for word in found] == ["none", "inside", "inside", "none", "inside"]
    red, dog, water = (word for word in found if word.target == "inside")
    assert red.mass == pytest.approx(0.8 + 0.2 / 7)
    assert red.share == red.pointing_uniform == pytest.approx(2 / 8)
    assert red.pointing == 1
    # The four middle cells of two rows and four columns hold the centre prior's maximum.
    assert red.pointing_centre_prior == pytest.approx(2 / 4)
    assert water.mass == pytest.approx(0.9)
    assert water.pointing_centre_prior == 0
    # "red" and "dog" are about the same place, so between them no shift shows.
    shifted = [(word.mass_one_word_early, word.mass_one_word_late) for word in (red, dog, water)]
    assert shifted == [(0.0, None), (None, 0.0), (0.0, None)]


def test_means_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioner.evaluation.map_scores.WORDS_SHOWN", 2)
    words = word_maps("x.jpg", WORDS, MAPS, TARGETS, SIZE, REGION)
    words += word_maps("y.jpg", ["dog"], MAPS[:1], [pixel(0)], SIZE, REGION)
    found = grounded_maps(words, not_annotated=1200)
    assert (found["words"], found["photos"], found["outside"]) == (4, 2, 0)
    expected = [0.8 + 0.2 / 7, 0.7 + 0.3 / 7, 0.9, 1.0]
    assert found["mass_inside"]["attention"] == pytest.approx(np.mean(expected))
    assert found["mass_inside"]["uniform"] == pytest.approx(np.mean([2 / 8, 2 / 8, 1 / 8, 1 / 8]))
    assert list(found["by_word"]) == ["dog", "red"]
    dog = found["by_word"]["dog"]
    assert dog["count"] == 2
    assert dog["mass_inside"]["attention"] == pytest.approx((expected[1] + 1) / 2)
    own = pytest.approx((expected[0] + expected[2]) / 2)
    assert found["one_word_early"] == {"words": 2, "own": own, "shifted": 0}
    table = [line.split() for line in grounded_table(found).splitlines()]
    assert table[1] == ["not", "annotated", "1,200", "photos,", "which", "do", "not", "count"]
    assert ["attention", f"{np.mean(expected):.4f}", "1.0000"] in table
    assert ["one", "word", "late"] in [line[:3] for line in table]
    assert ["dog", "2"] in [line[:2] for line in table]


def test_without_targets_there_is_the_spread_only() -> None:
    words = word_maps("x", WORDS, MAPS, None, SIZE, REGION)
    assert words[0].entropy == 0 < words[1].entropy
    found = grounded_maps(words)
    assert found["mass_inside"] is found["pointing_game"] is None
    assert grounded_table(found) == "words with a target  0  in 0 photos"
    assert word_maps("x", [], np.empty((0, 2, 4)), [], SIZE, REGION) == []


# A decoder whose maps are known

PLACES = (5, 0, 10, 15, 3, 12)
"""Where it looks at each step, of 4x4 places; the last is the ending's."""


class ScriptedDecoder(nn.Module):
    """Says `WORDS` whatever it sees, and at step t looks at place `PLACES[t]` and nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(memory_size=512)
        self.embedding = nn.Embedding(4 + len(WORDS), 1)

    def remember(self, annotations: Tensor) -> Memory:
        return Memory(annotations, annotations[..., :1])

    def start(self, memory: Memory) -> Any:
        return (memory, torch.zeros(memory.batch_size, 1, dtype=torch.long))

    def step(self, tokens: Tensor, state: Any) -> Step:
        memory, time = state
        said = torch.tensor([4, 5, 6, 7, 8, 2, 2])[time]  # (B, K): the words, and the end
        logits = nn.functional.one_hot(said, 9) * 9.0
        looked = torch.tensor([*PLACES, 0])[time]
        weights = nn.functional.one_hot(looked, memory.length).float()
        return Step(logits, (memory, time + 1), weights)


@pytest.fixture
def scripted() -> Captioner:
    return Captioner(
        VGGEncoder(VGGConfig(name="vgg11_bn", width=0.05)),
        ScriptedDecoder(),  # type: ignore[arg-type]
        Vocabulary(WORDS),
        Preprocessing(size=64, resize="squash"),
        SearchOptions(beam=3),
    )


PHOTO = Image.effect_noise((80, 80), 60).convert("RGB")


def place_box(place: int) -> tuple[float, float, float, float]:
    """The box of one of 4x4 places of a photo of 80x80."""
    row, column = divmod(place, 4)
    return (20.0 * column, 20.0 * row, 20.0 * column + 20, 20.0 * row + 20)


class EachItsPlace:
    """The target of word t is the place at which the scripted decoder looks when it says it."""

    def __contains__(self, image_id: ImageId) -> bool:
        return image_id == "x"

    def __str__(self) -> str:
        return "the boxes of x"

    def targets(self, image_id: ImageId, words: Any) -> list[Target | None]:
        return [
            Target((80, 80), (place_box(place),)) for place, _ in zip(PLACES, words, strict=False)
        ]


def one_photo(photo: Image.Image = PHOTO) -> list[Example]:
    return [Example("x", photo, ("a red dog",), (tuple(WORDS),))]


def test_scores_are_those_of_the_word_s_own_map(scripted: Captioner, tmp_path: Path) -> None:
    """Decoded, measured: a map one word early or late would have nothing inside."""
    scores = score_maps(scripted, one_photo(), EachItsPlace(), exact=True)
    assert [(word.word, word.mass) for word in scores.words] == [(word, 1.0) for word in WORDS]
    assert scores.exact == 1.0
    found = scores.grounded
    assert (found["words"], found["pointing_game"]["attention"]) == (5, 1.0)
    assert found["mass_inside"]["uniform"] == pytest.approx(1 / 16)
    shift = {"words": 4, "own": 1.0, "shifted": 0.0}
    assert found["one_word_early"] == found["one_word_late"] == shift
    assert scores.spread["divergence"] == pytest.approx(1.0)
    assert json.loads(json.dumps(scores.to_dict()))["grounded"] == found
    assert scores.table().startswith(
        "photos       1\nwords        5\nexact match  1.0000\nentropy "
    )
    scores.write_csv(str(tmp_path / "words.csv"))
    rows = list(csv.DictReader((tmp_path / "words.csv").open()))
    assert [rows[1][name] for name in ("image", "word", "mass")] == ["x", "red", "1.0"]


def test_every_drawing_shows_the_word_s_own_map(scripted: Captioner, tmp_path: Path) -> None:
    """The brightest part of what is drawn for word t is the place the decoder looked at."""
    white = Image.new("RGB", (80, 80), "white")
    (caption,) = scripted.caption([white])
    drawn = (white, caption.words, caption.attention, caption.region)

    def looked_at(picture: Image.Image) -> int:
        light = np.asarray(picture.convert("L").resize((80, 80), Image.Resampling.BOX), float)
        return int(light.reshape(4, 20, 4, 20).mean(axis=(1, 3)).argmax())

    names = [path.name for path in save_word_images(tmp_path, *drawn)]
    assert names == [f"{n:02}_{word}.jpg" for n, word in enumerate(WORDS, start=1)]
    pictures = [Image.open(tmp_path / name) for name in names]
    assert [looked_at(picture) for picture in pictures] == list(PLACES[:5])
    parts = [frame.crop((0, 0, 480, 480)) for frame in frames(*drawn)]
    assert [looked_at(part) for part in parts] == list(PLACES[:5])
    page = PageItem.of(white, caption.region, [PageCaption(caption.words, caption.attention)])
    assert page.captions[0].words == WORDS
    maps = np.array(json.loads(page.viewer_data)["captions"][0])
    assert maps.argmax(axis=1).tolist() == list(PLACES[:5])


def test_a_photo_is_measured_as_it_is_seen(scripted: Captioner) -> None:
    """Boxes are in pixels of the photo, and the model sees a crop of it."""
    scripted.preprocessing = Preprocessing(size=64, resize="crop", resize_shorter=64)
    wide = Image.new("RGB", (160, 80))
    (caption,) = scripted.caption([wide])
    assert caption.region == (40.0, 0.0, 120.0, 80.0)

    class Shifted(EachItsPlace):
        def targets(self, image_id: ImageId, words: Any) -> list[Target | None]:
            boxes = [place_box(place) for place in PLACES[:5]]
            moved = [(left + 40, top, right + 40, bottom) for left, top, right, bottom in boxes]
            # Drawn on a copy of half the size; and one beside what is seen.
            halves = [(a / 2, b / 2, c / 2, d / 2) for a, b, c, d in moved]
            return [Target((80, 40), (box,)) for box in [*halves[:4], (0.0, 0.0, 20.0, 40.0)]]

    found = score_maps(scripted, one_photo(wide), Shifted()).grounded
    assert (found["words"], found["outside"]) == (4, 1)
    assert found["mass_inside"]["attention"] == pytest.approx(1.0)


def test_photos_that_are_not_annotated_are_refused_or_counted(scripted: Captioner) -> None:
    other = Example("y", Path("absent.png"))
    sentence = "^not one of 1 photos is annotated in the boxes of x$"
    with pytest.raises(UserError, match=sentence):  # And no photo was opened for it.
        score_maps(scripted, [other], EachItsPlace())
    both = [Example("x", PHOTO), Example("y", PHOTO)]
    assert score_maps(scripted, both, EachItsPlace()).grounded["not_annotated"] == 1
    # A photo that is left out is none of those measured.
    left_out: dict[str, str] = {}
    found = score_maps(scripted, [both[0], other], EachItsPlace(), left_out=left_out).grounded
    assert list(left_out) == ["y"]
    assert found["not_annotated"] == 0
