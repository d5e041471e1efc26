"""Keywords: compounds whole, in a person's spelling; never brackets or a sentence in one piece."""

import pytest

from captioner.data.instances import read_synonyms
from captioner.text.keywords import LONGEST, keywords_of, keywords_of_text
from captioner.text.languages import word_list
from captioner.text.tokenizer import tokenize

NOUNS = {
    "a hot dog, a teddy bear and a red double decker bus": "hot dog|teddy bear|double decker bus",
    "two teddy-bears by the fire hydrants": "teddy-bears|fire hydrants",
    "an ice cream cone is no ice cream": "ice cream cone|ice cream",
    "french fries and wine glasses in a living room": "french fries|wine glasses|living room",
    "a dog in a hot room": "dog|room",
    "Anna (left) and Ben at the lake": "Anna|Ben|lake",
    "{Main} Street [corner], -LRB-": "Main|Street",
    "My iPhone on a café table in New York": "iPhone|café|table|New York",
    "Dog, dog, DOG, dogs": "Dog|dogs",
    "一只狗在草地上跑": "",
    "犬が草の上を走っています。": "",
    "สุนัขวิ่งบนหญ้า": "",
    "Собака бежит": "",
    "Fuji 富士山": "Fuji",
    "": "",
}


@pytest.mark.parametrize(("text", "expected"), NOUNS.items())
def test_nouns_by_hand(text: str, expected: str) -> None:
    assert "|".join(keywords_of_text(text)) == expected


ALL = {
    ("A yellow hot dog (left)", "en"): "yellow|hot dog",
    ("Der Hund, (braun)", "de"): "Hund|braun",
    ("un chien sur l'eau", "fr"): "chien|eau",
    ("Собака бежит", "ru"): "Собака|бежит",
    ("犬が走る。", "ja"): "",
    ("一只狗", "en"): "",
}


@pytest.mark.parametrize(("given", "expected"), ALL.items())
def test_all_content_words_by_hand(given: tuple[str, str], expected: str) -> None:
    text, language = given
    assert "|".join(keywords_of_text(text, "all", language)) == expected
    assert keywords_of_text(text, "none", language) == ()
    assert language == "en" or keywords_of_text(text, "nouns", language) == ()


def test_the_list_has_the_names_of_coco_and_no_compound_that_is_too_long() -> None:
    compounds = word_list("compounds")
    names = {name.replace(" ", "-") for name in read_synonyms().categories if " " in name}
    assert len(names) == 15
    assert names <= compounds
    assert {compound.count("-") for compound in compounds} <= {*range(1, LONGEST)}


def test_a_compound_ends_at_the_place_of_its_last_word() -> None:
    words = tokenize("a hot dog on a plate by a stop sign")
    assert [*keywords_of(words)] == [("hot dog", 2), ("plate", 5), ("stop sign", 9)]


@pytest.mark.parametrize(
    "text", ["A Man's dog, e.g. U.S. (x) gonna", "K. The Dog 'TIS", "ÉTÉ -5 ½"]
)
def test_capitals_change_no_word(text: str) -> None:
    spelled = tokenize(text, lower=False)
    assert [word.lower() for word in spelled] == tokenize(text)
    assert spelled != tokenize(text)
