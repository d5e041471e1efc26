"""Text in its plain form, lines in capitals as sentences; tags and kinds of words."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from captioner.model_folders import model_folder
from captioner.text.languages import (
    are_keywords,
    as_sentence,
    is_function_word,
    is_noun,
    language_tag,
    plain_text,
    straighten,
    unescape_entities,
    with_articles,
    word_kinds,
)
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary


def test_plain_text_by_example() -> None:
    assert plain_text("  A\tman \n\u00a0runs ") == "A man runs"
    assert plain_text("e\u0301 ÀB", "lower") == "é àb"
    assert plain_text("a\u2581b \uffed \ud800") == "a b \u25a0 \ufffd"


def test_entities_are_unescaped() -> None:
    text = "a &quot;dog&quot; &amp; a man&#39;s caf&eacute; &#x201c;"
    assert unescape_entities(text) == 'a "dog" & a man\'s café “'
    assert unescape_entities(other := "AT&T, ?a=1&copy=2 &; &house;") == other


@pytest.mark.parametrize(
    ("text", "straight"),
    [
        ("A man’s ‘hat’, ‚so‘, ‹so›, it`s, 6′", "A man's 'hat', 'so', 'so', it's, 6'"),
        ("“red” „rot“ «rouge» ‟x” 6″", '"red" "rot" "rouge" "x" 6"'),
        ("5–10 – a well‑known −1 ‐ ‒", "5-10 - a well-known -1 - -"),
        ("hat—jumps ― so…", "hat - jumps  -  so..."),
        ("ﬁre\u00adﬂy\u200b oﬀ oﬃce eﬄuent ﬆ\ufeff", "firefly off office effluent st"),
        ("naïve Straße, 你好！ ½", "naïve Straße, 你好！ ½"),
    ],
)
def test_typographic_marks_are_straightened(text: str, straight: str) -> None:
    assert straighten(text) == straight


@given(
    st.text() | st.text("aBÉİǅ'’é\u0301l. ß1\u2581\uffed\ud800\0"), st.sampled_from(["", "lower"])
)
def test_plain_text_is_plain(text: str, case: str) -> None:
    plain = plain_text(text, case)
    assert plain_text(plain, case) == plain == unicodedata.normalize("NFC", plain)
    assert plain.encode().decode() == " ".join(plain.split())
    assert bool(as_sentence(plain)[0]) == bool(plain)


UNCHANGED = """A man is playing the guitar.
John Smith lives in New York City.
A man in a US ARMY shirt.
Two Dogs.
BBC
BBC 2
dog
iPhone on a table
2 dogs run
山 dog
1 2 3
山 日 水 木"""


@pytest.mark.parametrize(
    ("line", "sentence", "kind"),
    [
        ("A MAN IS PLAYING THE GUITAR.", "A man is playing the guitar.", "upper"),
        ('  "TWO  DOGS," 3 CATS', '"Two dogs," 3 cats', "upper"),
        ("STOP!", "Stop!", "upper"),
        ("a dog runs  in Paris", "A dog runs in Paris", ""),
        ('"éire" is a sign', '"Éire" is a sign', ""),
        *((line, line, "") for line in UNCHANGED.splitlines()),
    ],
)
def test_lines_in_capitals(line: str, sentence: str, kind: str) -> None:
    is_upper = kind == "upper"
    assert as_sentence(line, "lines") == (sentence, is_upper)
    assert as_sentence(line, "keep") == (line, False)


@pytest.mark.parametrize("tag", ["de", "und", "pt-BR", "zh-Hant-TW", "sl-rozaj-1994"])
def test_a_tag_has_its_usual_case(tag: str) -> None:
    for text in (tag, tag.lower(), tag.upper()):
        assert language_tag(text, "--language") == tag


@pytest.mark.parametrize("text", ["", "d", "french", "de_DE", "de-"])
def test_a_wrong_language_tag_is_refused(text: str) -> None:
    refuses(r"^--language .* is not a language", language_tag, text, "--language")


FRENCH = "Un homme d'une équipe qu'il y a près de l'eau, à côté d’un chien."


@pytest.mark.parametrize(
    ("language", "caption", "content"),
    [
        ("en", "A man 's dog is running in front of the red house", "man dog running red house"),
        ("de-AT", "Ein Hund, der auf dem Gras liegt, und eine Frau.", "Hund, Gras liegt, Frau."),
        ("fr", FRENCH, "homme équipe l'eau, chien."),
        ("it", "Un uomo e il suo cane", "Un uomo e il suo cane"),
    ],
)
def test_function_words_are_those_of_a_language(language: str, caption: str, content: str) -> None:
    kept = [word for word in caption.split() if not is_function_word(word, language)]
    assert kept == content.split()


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A brown dog runs through the tall grass.", "dog grass"),
        ("Two men are sitting on a bench in front of a red building", "men bench building"),
        ("a girl in a t-shirt on 2 skis", "girl t-shirt skis"),
        ("it is very dark", ""),
    ],
)
def test_nouns_of_a_caption(caption: str, expected: str) -> None:
    words = dict.fromkeys(tokenize(caption))
    assert [word for word in words if is_noun(word)] == expected.split()


KEYWORDS = {
    "a group of people standing on top of a hill": "people hill",
    "a close up photo of a slide and a cook in a kitchen": "slide cook kitchen",
    "two dogs chase each other whilst a girl goes down a slide": "dogs girl slide",
    "a picture of a wooden living room with seating and several items": "room seating",
}
NO_NOUNS = "adult bald chases crowded finish homemade jumps lies martial mid though two whilst"


@pytest.mark.parametrize(("text", "expected"), KEYWORDS.items())
def test_keywords_by_hand(text: str, expected: str) -> None:
    words = text.split()
    chosen = [word for word, is_one in zip(words, are_keywords(words), strict=True) if is_one]
    assert chosen == expected.split()


def test_nouns_among_the_words_of_the_packaged_captioner() -> None:
    words = Vocabulary.load(model_folder("vgg") / "vocabulary.json").words[4:]
    nouns = {word for word in words if is_noun(word)}
    assert 1200 < len(nouns) < 1300  # Read one by one.
    assert nouns.isdisjoint(NO_NOUNS.split())


CASES = {
    "a man in a red shirt rides a bike": "person quality thing action thing",
    "two dogs run through the deep snow": "number thing action quality place",
    "a woman standing next to a bench in front of a building": "person action place place",
    "three players sit on top of the table": "number person action place place",
    "a boy goes down a slide": "person action place",
    "a black and white cat on a leather couch": "quality quality thing thing place",
    "12 horses standing outdoors": "number thing action place",
    "": "",
}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_kinds_by_hand(text: str, expected: str) -> None:
    kinds = word_kinds(text.split())
    assert len(kinds) == len(text.split())
    assert [kind for kind in kinds if kind is not None] == expected.split()


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a elephant and an dog", "an elephant and a dog"),
        ("a old man under a umbrella", "an old man under an umbrella"),
        ("an unicycle beside an uniformed man", "a unicycle beside a uniformed man"),
        ("a hour an european used an one", "an hour a european used a one"),
        ("a suv and an unidentified urinal", "an suv and an unidentified urinal"),
        ("an horse on a x-ray an 8 a 18 a 80", "a horse on an x-ray an 8 an 18 an 80"),
        ("a 8th ufo an ones a 8x10 nfl mri", "an 8th ufo a ones an 8x10 nfl mri"),
        ("an ukulele a 80s an u a onerous", "a ukulele an 80s a u an onerous"),
        ("a", "a"),
        ("a orange on an", "an orange on an"),  # Cut off.
        ("", ""),
    ],
)
def test_articles_are_those_of_the_sound(caption: str, expected: str) -> None:
    assert with_articles(caption.split()) == expected.split()
