"""Words that captions never have, and how they begin: every search, engine and language."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from samples import CAPTION, Output, Refused, assert_same_captions, confidence_weights, photo

import captioner
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, WordWeights
from captioner.cli.main import main
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.model_folders import DEMO_PHOTO
from captioner.text.languages import word_forms

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


def test_the_packaged_engines_agree() -> None:
    steered = {"begin": "a photo of", "without": "person,man,woman,boy,girl,dog with,hat,helmet"}
    found = {}
    for engine, cautious in product(("graphs", "torch"), (False, True)):
        model = captioner.load(engine=engine)
        found[engine, cautious] = model.caption(DEMO_PHOTO, **steered, cautious=cautious, n_best=3)
    for cautious in (False, True):
        best = found["graphs", cautious]
        assert_same_captions([best], [found["torch", cautious]])
        for each in (best, *best.alternatives):
            assert each.words[:3] == ("a", "photo", "of")
            assert not SearchOptions(**steered).forbidden_in(each.words)


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
