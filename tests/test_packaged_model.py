"""The models in the package: small enough and described; the captioner looks at the photo."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image
from samples import imported

import captioner
from captioner.data.readers import read_examples
from captioner.demo import DEMO_PHOTO
from captioner.evaluation.score import evaluate_captions
from captioner.model_folders import model_folder, packaged_models
from captioner.runs.caption_task import scores_of

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "flickr8k"
EVERYDAY = DATA.parent / "everyday"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the real data are not at hand")


@pytest.fixture(scope="module")
def model() -> captioner.Captioner:
    return captioner.load()


SOURCES = {
    "default": ("Flickr8k", "COCO", "PASCAL", "EfficientNet"),
    **dict.fromkeys(("english_german", "english_french"), ("Multi30k",)),
}
"""What the card of each packaged model names."""


@pytest.mark.parametrize("name", SOURCES)
def test_each_is_small_enough_and_its_card_says_what_a_user_must_know(name: str) -> None:
    assert sorted(SOURCES) == packaged_models()
    size = sum(path.stat().st_size for path in model_folder(name).iterdir())
    assert size <= (40e6 if name == "default" else 15e6)
    card = (model_folder(name) / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\n")  # Fields that model hubs read.
    assert len(card.splitlines()) <= 120
    for heading in ("Use", "Data", "Recipe", "Scores", "Limits", "Licence"):
        assert re.search(rf"^## {heading}", card, flags=re.MULTILINE), heading
    for source in SOURCES[name]:
        assert source in card


def test_it_sees_the_cat_in_the_demo_photo(model: captioner.Captioner) -> None:
    (caption,) = model.caption([DEMO_PHOTO])
    assert "cat" in caption.words
    assert caption.attention.shape == (len(caption.words), 14, 14)
    assert torch.allclose(caption.attention.sum((1, 2)), torch.ones(len(caption.words)), atol=1e-4)


def test_it_says_how_far_to_trust_its_captions(model: captioner.Captioner) -> None:
    """As it is shipped: its confidence is low, and said to be, of what is no photo."""
    noise = Image.fromarray(
        numpy.random.default_rng(0).integers(0, 255, (240, 320, 3), dtype=numpy.uint8)
    )
    plain = Image.new("RGB", (320, 240))
    demo, *others = model.caption([DEMO_PHOTO, noise, plain])
    # It lies close to the limit: on which side of it is not asked.
    assert demo.confidence is not None
    assert 0 <= demo.confidence <= 1
    for caption in others:
        assert caption.confidence is not None
        assert 0 <= caption.confidence < demo.confidence
        assert caption.doubt.startswith("not sure")


@pytest.mark.parametrize(
    "use", ["load().caption([DEMO_PHOTO])", "load_translator().translate(['A dog runs.'])"]
)
def test_using_a_model_imports_nothing_heavy_besides_torch(use: str) -> None:
    code = f"import captioner; from captioner.demo import DEMO_PHOTO; captioner.{use}"
    heavy = ("sympy", "triton", "torch._dynamo", "torch._inductor", "torch.onnx")
    unused = ("torchvision", "nltk", "matplotlib", "pycocotools", "sacrebleu")
    assert imported(code, *heavy, *unused) == []


@pytest.mark.slow
@pytest.mark.data
@needs_data
def test_it_beats_any_one_sentence_on_validation_photos(model: captioner.Captioner) -> None:
    """On 100 photos, the training caption that scores best on all 1,000; see the card."""
    examples = read_examples(
        "flickr8k", DATA / "Flickr8k.token.txt", DATA / "images", str(DATA / "val.txt")
    )[:100]
    captions = [caption.text for caption in model.caption([each.path for each in examples])]
    constant = scores_of(["the black and white dog is running through the water"] * 100, examples)
    scores = scores_of(captions, examples)
    assert scores["CIDEr-D"] > 1.5 * constant["CIDEr-D"]
    assert scores["BLEU-4"] > constant["BLEU-4"]
    assert len(set(captions)) > 50


@pytest.mark.slow
@pytest.mark.data
@needs_data
def test_it_names_what_everyday_photos_show(model: captioner.Captioner) -> None:
    """All 190 validation photos; the card has the figures, this asks for somewhat less."""
    examples = read_examples("coco", EVERYDAY / "captions_val.json", EVERYDAY / "photos")
    captions = [caption.text for caption in model.caption([each.path for each in examples])]
    scores = evaluate_captions(captions, [each.captions for each in examples]).as_dict()
    assert scores["CIDEr-D"] > 0.65
    assert scores["word-precision"] > 0.47
    assert scores["captions with none"] < 0.15
