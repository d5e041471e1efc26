"""The tokeniser against the COCO evaluation's own, which is a Java program."""

import gzip
import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from text.test_tokenizer import RECORDED

from captioner.text.tokenizer import tokenize

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime"),
    pytest.mark.skipif(
        importlib.util.find_spec("pycocoevalcap") is None, reason="needs pycocoevalcap"
    ),
]


def assert_equal(captions: list[str]) -> None:
    """To what the Java program makes of the captions, each with one that begins with A after it."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    lines = [line for caption in captions for line in (caption, "A dog")]
    written = PTBTokenizer().tokenize({n: [{"caption": line}] for n, line in enumerate(lines)})
    words = [written[index][0].split() for index in range(len(lines))]
    assert all(of_dog == ["a", "dog"] for of_dog in words[1::2]), "the lines do not match"
    pairs = zip(captions, words[::2], strict=True)
    assert [(each, theirs) for each, theirs in pairs if theirs != tokenize(each)] == []


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("coco/captions_val2017_subset.json", 24_169),
        ("everyday/text/coco_captions.txt.gz", 85_945),
        ("flickr8k/Flickr8k.token.txt", 35_000),
        *((f"multi30k/train.{language}.gz", 29_000) for language in ("en", "de", "fr")),
    ],
)
def test_captions_of_real_data(name: str, count: int) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"needs the real data, {path.name}")
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    if path.suffix == ".json":
        captions = [each["caption"].replace("\n", " ") for each in json.loads(text)["annotations"]]
    else:
        captions = [line.rpartition("\t")[2] for line in text.splitlines()]
    assert len(captions) == count
    assert_equal(captions)


def test_recorded_captions_in_sentences() -> None:
    recorded = [caption for cases in RECORDED.values() for caption, _ in cases]
    words = {word for caption in recorded for word in caption.split(" ") if word}
    parts = [*recorded, *sorted(words)]
    forms = ["{}", "A dog {} runs.", '"{}"', "({} x)", "A {} here, too", "{}.", "{} {}"]
    assert_equal([form.format(part, part) for form in forms for part in parts])
