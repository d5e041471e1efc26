"""Words that captions never have, and how they begin: every search, engine and language."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import CAPTION, Output, Refused, assert_same_captions, confidence_weights, photo

import captioner
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, WordWeights
from captioner.cli.main import main
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.loading import LANGUAGES, load_translator
from captioner.model_folders import DEMO_PHOTO
from captioner.text.languages import word_forms
from captioner.translate.translated_captions import avoiding, translate_captions

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


def test_plurals() -> None:
    for word, plural in {"man": "men", "person": "people", "baby": "babies", "boy": "boys"}.items():
        assert plural in word_forms(word)
    options = SearchOptions(without="Man,boy, woman’s ,man")
    assert options.without == SearchOptions(without={"woman", "man's", "boy"}).without
    assert options.forbidden_words >= {"man", "men", "mans", "boys", "women"}
    for text in ("", " , ,", "'s"):
        assert not SearchOptions(without=text).forbidden_words
    for given in (None, "x," * 600):
        with pytest.raises(UserError, match="without should"):
            SearchOptions(without=given)


def test_the_packaged_engines_agree_and_caution_says_no_person() -> None:
    steered = {"begin": "a photo of", "without": "person,man,woman,boy,girl,dog,hat,helmet"}
    found = {}
    for engine, cautious in product(("graphs", "torch"), (False, True)):
        model = captioner.load(engine=engine)
        found[engine, cautious] = model.caption(DEMO_PHOTO, **steered, cautious=cautious, n_best=3)
    for cautious in (False, True):
        best = found["graphs", cautious]
        assert_same_captions([best], [found["torch", cautious]])
        for each in (best, *best.alternatives):
            assert SearchOptions(**steered).allows(each.words)
    with pytest.raises(UserError, match="people wrote no caption that begins 'cow a photo'"):
        model.caption(DEMO_PHOTO, begin="cow a photo")


@pytest.mark.parametrize("language", LANGUAGES)
def test_little_words_and_words_that_the_model_lacks_forbid_no_others(language: str) -> None:
    model = captioner.load()  # "Mango" would be a man, "the" the water.
    plain = model.caption(DEMO_PHOTO, language=language)
    with pytest.warns(UserWarning, match="mango"):
        found = model.caption(DEMO_PHOTO, language=language, without="mango")
    assert found.text == plain.text
    little = frozenset(["a", "the"])
    assert not avoiding(load_translator(LANGUAGES[language]), language, little).avoid


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_lack_what_the_words_mean(language: str) -> None:
    texts = ["a man and two men are playing", "a woman's boy with a young girl", "people sit"]
    maps = np.ones((9, 1, 1), np.float32)
    captions = [
        Caption(t, tuple(t.split()), 0.0, (0.0,) * 9, maps[: len(t.split())]) for t in texts
    ]
    words = SearchOptions(without="man,woman,boy,girl,people,two,playing").forbidden_words
    translator = load_translator(LANGUAGES[language])
    kept = avoiding(translator, language, words)
    found = translate_captions(captions, kept, language)
    said = " ".join(each.text for each in found).lower()
    meant = "mann männer frau junge mädchen menschen zwei spielt spiele spielend"
    meant += " homme femme garçon fille personne deux joue jouent"
    plain = " ".join(each.text for each in translate_captions(captions, translator, language))
    assert sum(word in plain.lower() for word in meant.split()) >= 3
    assert not [
        word for word in said.replace("'", " ").split() if word.rstrip("sn,") in meant.split()
    ]
    alone = [translate_captions(each, kept, language) for each in captions]
    assert_same_captions(found, alone)


def test_what_cannot_be_said_is_named(folder: Path, capsys: Output, refused: Refused) -> None:
    command = [*CAPTION, "a.png", "--jsonl", "o.jsonl"]
    assert "cannot be said: hovercraft, my" in refused([*command, "--begin", "My hovercraft"])
    assert "cannot be said: dogs" in refused([*command, "--begin", "dogs", "--without", "dog"])
    assert "more words than" in refused([*command, "--begin", "a dog a", "--maximum-length", "2"])
    with pytest.MonkeyPatch.context() as patch:  # Before a photo is read.
        patch.setattr("captioner.caption.captioner.outcomes_of", None)
        known = ["caption", "--model", "default", "a.png"]
        assert "people wrote no caption" in refused([*known, "--begin", "cow a photo"])
    assert main([*command, "--without", "hovercraft,dog"]) == 0
    assert "words that the model lacks: hovercraft\n" in capsys.readouterr().err
    assert main([*command, "--resume", "--without", "dog, hovercraft", "--quiet"]) == 0
    for other in ([], ["--without", "cat"], ["--without", "dog,hovercraft", "--begin", "a"]):
        assert "give another file, or --resume-any" in refused([*command, "--resume", *other])
