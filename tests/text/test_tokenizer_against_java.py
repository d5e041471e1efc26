"""The tokeniser against the COCO evaluation's own, which is a Java program."""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from text.test_tokenizer import RECORDED

from captioner.text.tokenizer import tokenize

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
COCO = DATA / "coco" / "captions_val2017_subset.json"
COCO_TRAINING = DATA / "everyday" / "text" / "coco_captions.txt.gz"
FLICKR8K = DATA / "flickr8k" / "Flickr8k.token.txt"
MULTI30K = {language: DATA / "multi30k" / f"train.{language}.gz" for language in ("en", "de", "fr")}

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime"),
    pytest.mark.skipif(
        importlib.util.find_spec("pycocoevalcap") is None, reason="needs pycocoevalcap"
    ),
]


def needs(path: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not path.exists(), reason=f"needs the real data, {path.name}")


def assert_equal(captions: list[str]) -> None:
    """To what the Java program makes of the captions, each with one that begins with A after it."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    lines = [line for caption in captions for line in (caption, "A dog")]
    images = {index: [{"caption": line}] for index, line in enumerate(lines)}
    written = PTBTokenizer().tokenize(images)
    words = [written[index][0].split() for index in range(len(lines))]
    assert all(of_dog == ["a", "dog"] for of_dog in words[1::2]), "the lines do not match"
    unequal = [
        (caption, theirs, tokenize(caption))
        for caption, theirs in zip(captions, words[::2], strict=True)
        if theirs != tokenize(caption)
    ]
    assert unequal == []


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.data
@needs(COCO)
def test_coco_captions() -> None:
    annotations = json.loads(COCO.read_text(encoding="utf-8"))["annotations"]
    assert len(annotations) == 24_169
    captions = [annotation["caption"].replace("\n", " ") for annotation in annotations]
    assert_equal([*captions, *lines_of(COCO_TRAINING)])


@pytest.mark.slow
@pytest.mark.data
@needs(FLICKR8K)
def test_flickr8k_captions() -> None:
    lines = FLICKR8K.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 30_000
    assert_equal([line.split("\t")[1] for line in lines])


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("language", MULTI30K)
def test_multi30k_captions(language: str) -> None:
    if not MULTI30K[language].exists():
        pytest.skip("needs the real data of Multi30k")
    captions = lines_of(MULTI30K[language])
    assert len(captions) == 29_000
    assert_equal(captions)


def test_recorded_captions_in_sentences() -> None:
    recorded = [caption for cases in RECORDED.values() for caption, _ in cases]
    words = {word for caption in recorded for word in caption.split(" ") if word}
    parts = [*recorded, *sorted(words)]
    forms = ["{}", "A dog {} runs.", '"{}"', "({} x)", "A {} here, too", "{}.", "{} {}"]
    assert_equal([form.format(part, part) for form in forms for part in parts])
