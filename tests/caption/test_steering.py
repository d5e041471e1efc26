"""Words that captions never have, and how they begin: every search, engine and language."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import (
    CAPTION,
    WORDS,
    Output,
    Refused,
    assert_same_captions,
    confidence_weights,
    make_captioner,
    photo,
)

import captioner
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, WordWeights
from captioner.cli.main import main
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.model_folders import DEMO_PHOTO
from captioner.text.languages import neutral, word_forms

PHOTOS = [photo(seed) for seed in range(3)]
SEARCHES: list[dict[str, Any]] = [
    {},
    {"n_best": 3},
    {"sample": True, "n_best": 4, "temperature": 5.0, "beam": 4},
    {"cautious": True, "repeat_distance": 3},
]


@pytest.mark.parametrize("options", SEARCHES)
def test_captions_begin_so_and_lack_the_words(options: Any, tiny_captioner: Captioner) -> None:
    words = WordWeights(intercept=-1, probability=3, caption=0.5, both=0.1)
    weights = confidence_weights(1.0, 0.5, 0.75, 0.25, -0.125)
    tiny_captioner.confidence = Confidence(weights=weights, words=words)
    plain = tiny_captioner.caption(PHOTOS, **options)
    said = plain[0].words[-1]
    options = {**options, "without": [said.upper()], "begin": "A dog, a dog"}
    found = tiny_captioner.caption(PHOTOS, **options)
    for each in (version for best in found for version in (best, *best.alternatives)):
        assert each.words[:4] == ("a", "dog", "a", "dog")
        assert said not in each.words[4:]
    if "sample" not in options:
        alone = [tiny_captioner.caption(each, **options) for each in PHOTOS]
        assert_same_captions(found, alone)
    given = tiny_captioner.explain(PHOTOS[0], found[0].text)
    assert given.word_log_probabilities == pytest.approx(found[0].word_log_probabilities, abs=1e-4)


def test_articles_are_those_of_english_where_the_words_are() -> None:
    for words, expected in (
        (WORDS, "an umbrella on a dog"),
        ([word for word in WORDS if word != "the"], "a umbrella on an dog"),  # Of another language.
    ):
        model = make_captioner(words=[*words, "an", "umbrella"])
        found = model.caption(PHOTOS[0], begin="a umbrella on an dog", maximum_length=8)
        assert found.text.startswith(expected)
        assert found.words[:5] == tuple(expected.split())
        given = model.explain(PHOTOS[0], "A umbrella")
        assert (given.text, given.words) == ("A umbrella", ("a", "umbrella"))


def test_phrases_and_their_plurals() -> None:
    for word, plural in {"man": "men", "person": "people", "baby": "babies", "boy": "boys"}.items():
        assert plural in word_forms(word)
    options = SearchOptions(without="Man,boy, woman’s ,man, a hot Dog")
    assert options.without == "a hot dog,boy,man,woman"
    assert options == SearchOptions(without={"woman", "man's", "boy", "a hot dog"})
    forbidden = {"man", "men", "mans", "boys", "women", "a hot dog", "a hot dogs"}
    assert options.forbidden_phrases >= forbidden
    assert "dog" not in options.forbidden_phrases
    assert options.forbidden_in(["a", "hot", "dog", "of", "mens"]) == {"a hot dog"}
    for text in ("", " , ,", "'s"):
        assert not SearchOptions(without=text).forbidden_phrases
    for given in (None, "x," * 600):
        with pytest.raises(UserError, match="without should"):
            SearchOptions(without=given)


def test_words_are_not_forbidden_in_another_language(folder: Path, refused: Refused) -> None:
    model = captioner.load()
    with pytest.raises(UserError, match="'without' is for captions in English"):
        model.caption(DEMO_PHOTO, language="de", without="dog")
    assert model.caption(DEMO_PHOTO, language="en-GB", without="dog").language is None
    command = ["caption", "a.png", "--language", "fr", "--without", "dog"]
    assert "'without' is for captions in English" in refused(command)


def test_what_cannot_be_said_is_named(folder: Path, capsys: Output, refused: Refused) -> None:
    command = [*CAPTION, "a.png", "--jsonl", "o.jsonl"]
    assert "cannot be said: hovercraft, my" in refused([*command, "--begin", "My hovercraft"])
    assert "cannot be said: dogs" in refused([*command, "--begin", "dogs", "--without", "dog"])
    assert "more words than" in refused([*command, "--begin", "a dog a", "--maximum-length", "2"])
    assert main([*command, "--without", "hovercraft,dog"]) == 0
    assert "words that the model lacks: hovercraft\n" in capsys.readouterr().err
    assert main([*command, "--resume", "--without", "dog, hovercraft", "--quiet"]) == 0
    for other in ([], ["--without", "cat"], ["--without", "dog,hovercraft", "--begin", "a"]):
        assert "give another file, or --resume-any" in refused([*command, "--resume", *other])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("a man and his dog", "a person and their dog"),
        ("two women with a girl 's hat", "two people with a child 's hat"),
        ("Men, and a human", "People, and a human"),
        ("a cow with her calf", "a cow with their calf"),
    ],
)
def test_words_without_gender(said: str, expected: str) -> None:
    assert neutral(said) == expected


def test_people_are_persons_on_request_and_keep_their_maps(tiny_captioner: Captioner) -> None:
    photos = [photo(number) for number in range(8)]
    plain = tiny_captioner.caption(photos, n_best=3, begin="a man")
    found = tiny_captioner.caption(photos, n_best=3, begin="a man", people="neutral")
    assert {each.words[1] for each in found} == {"person"}
    for one, other in zip(plain, found, strict=True):
        assert other.words == tuple(map(neutral, one.words))
        assert other.text == neutral(one.text)
        assert np.array_equal(one.attention, other.attention)
        assert [each.text for each in other.alternatives] == [
            neutral(each.text) for each in one.alternatives
        ]


def test_alt_text_is_a_whole_sentence_that_fits(tiny_captioner: Captioner) -> None:
    every = tiny_captioner.caption(photo(), beam=5, n_best=5)
    texts = [each.text for each in (every, *every.alternatives)]
    lengths = sorted({len(text) + 1 for text in texts})
    assert len(lengths) > 1
    for most in (lengths[0] - 1, *lengths):
        found = tiny_captioner.caption(photo(), beam=5, sentence=True, maximum_characters=most)
        fitting = [text for text in texts if len(text) + 1 <= most]
        expected = fitting[0] if fitting else min(texts, key=len)
        assert found.text == f"{expected[0].upper()}{expected[1:]}."
        assert " ".join(found.words) == expected


def test_a_full_stop_is_no_edit(folder: Path) -> None:
    command = [*CAPTION, "a.png", "--sentence", "--people", "neutral", "--jsonl", "t.jsonl"]
    assert main(command) == 0
    record = json.loads(Path("t.jsonl").read_text())
    assert record["caption"].endswith(".")
    assert "by" not in record
    assert main([*command, "--resume"]) == 0
    assert json.loads(Path("t.jsonl").read_text()) == record
    for table in ("t.csv", "t.parquet"):
        option = f"--{table.partition('.')[2]}"
        assert main([*CAPTION, "a.png", "--sentence", option, table]) == 0
        assert main(["write", table, "--xmp", "--overwrite-descriptions"]) == 0
        assert "captioner:by" not in Path("a.xmp").read_text()
