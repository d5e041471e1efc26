"""The steps towards the packaged captioner: boxes as maps, tables, distillation."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import VGGConfig, VGGEncoder

NAMES = ("photos", "teachers", "teacher_features", "distill", "tables", "mean", "split")


@pytest.fixture
def scripts(import_scripts: None) -> Any:
    return SimpleNamespace(**{name: __import__(name) for name in NAMES})


def test_a_box_covers_the_cells_whose_centres_it_holds(scripts: Any) -> None:
    boxes = scripts.teachers.Boxes(
        torch.tensor([3, 3, 7]),
        torch.tensor([0.5, 0.9, 0.4]),
        # Half of the photo; its lower right quarter; a speck in the second cell of the first row.
        torch.tensor([[0, 0, 1, 0.5], [0.5, 0.5, 1, 1], [0.3, 0.1, 0.32, 0.12]]),
    )
    maps = scripts.teachers.paint([boxes, scripts.teachers.Boxes(*(each[:0] for each in boxes))], 4)
    assert maps.shape == (2, 80, 4, 4)
    expected = torch.tensor([[0.5] * 4, [0.5] * 4, [0, 0, 0.9, 0.9], [0, 0, 0.9, 0.9]])
    assert torch.allclose(maps[0, 3], expected)
    assert maps[0, 7].nonzero().tolist() == [[0, 1]]
    assert int(maps[1].count_nonzero()) == 0


def test_words_that_people_keep_apart(scripts: Any) -> None:
    vocabulary = Vocabulary(["a", "man", "woman", "bike", "bicycle", "surfboard", "snow"])
    texts = ["a man bike", "a woman bicycle", "a man surfboard", "a woman snow", "a man woman"]
    texts += ["a man bike bicycle"]
    captions = [text.split() for text in texts * 20 + texts[:2] * 700]
    clashes = scripts.mean.clashes(captions, vocabulary).tolist()
    apart = {vocabulary.words[a] + " " + vocabulary.words[b] for a, _, _, b in clashes}
    # A thirtieth of the bikes have a bicycle. Nobody put snow and surfboards together: by chance.
    assert {"bike bicycle", "woman bike", "snow man", "surfboard woman"} < apart
    assert not apart & {"man bike", "man woman", "snow surfboard", "a surfboard"}
    assert apart == {" ".join(pair.split()[::-1]) for pair in apart}
    assert {token for clash in clashes for token in clash[1:3]} == {vocabulary.start}


def test_a_split_encoder_begins_as_the_best_of_its_rank(scripts: Any) -> None:
    torch.manual_seed(0)
    whole = VGGEncoder(VGGConfig(name="vgg11_bn", width=0.1, context=(2,))).eval()
    photos = torch.randint(256, (12, 3, 64, 64), dtype=torch.uint8)
    split = scripts.split.split_encoder(whole, photos)
    assert split.config == VGGConfig(name="vgg11", width=0.1, context=(2,), rank=0.5)
    folded = whole.for_inference(torch.float32)
    vectors = folded.encode(photos[:4].float() / 255)  # (4, L, D)
    deviation = vectors.std(dim=(0, 1)).clamp(min=1e-3)  # (D,)
    pupil = scripts.split.Pupil(split, folded, deviation)
    assert scripts.split.kept(pupil, photos) > 0.99
