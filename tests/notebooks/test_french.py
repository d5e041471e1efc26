import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "notebooks" / "french.py"))
ADJECTIVES, NOUNS = SCRIPT["ADJECTIVES"], SCRIPT["NOUNS"]
french_order, french_pairs = SCRIPT["french_order"], SCRIPT["french_pairs"]

FEMININE = {"vache", "poule", "souris", "voiture", "porte", "fleur", "maison", "table"}
MASCULINE = {"chat", "chien", "cheval", "bateau", "livre", "chapeau"}


def test_pairs() -> None:
    pairs = french_pairs(200, seed=3, fewest=1, most=3)
    assert len({pair.source for pair in pairs}) == 200
    assert [pair.line for pair in pairs] == list(range(1, 201))
    assert pairs == french_pairs(200, seed=3, fewest=1, most=3)
    assert pairs != french_pairs(200, seed=4, fewest=1, most=3)
    clauses = [pair.source.split().count("and") + 1 for pair in pairs]
    assert set(clauses) == {1, 2, 3}
    for pair, count in zip(pairs, clauses, strict=True):
        assert pair.target.split().count("et") + 1 == count
        assert 5 * count + count - 1 <= len(pair.source.split()) <= 9 * count + count - 1


def test_every_word_has_one_translation_but_for_its_gender() -> None:
    found: dict[str, set[str]] = {}
    for pair in french_pairs(500, seed=1):
        english, french = pair.source.split(), pair.target.split()
        order = french_order(english)
        assert sorted(order) == list(range(len(english)))
        for word, place in zip(french, order, strict=True):
            found.setdefault(english[place], set()).add(word)
    for english, forms in found.items():
        assert len(forms) <= 2
        assert english in ADJECTIVES | {"a", "the"} or len(forms) == 1
    assert found["French"] == {"français", "française"}
    assert found["a"] == {"un", "une"}
    assert len(found) == len(ADJECTIVES) + len(NOUNS) + 8


def test_adjectives_and_articles_have_the_gender_of_their_noun() -> None:
    of_feminine, of_masculine = set(), set()
    for pair in french_pairs(500, seed=2):
        phrase: list[str] = []
        for word in [*pair.target.split(), "et"]:
            if word in ("un", "une", "le", "la", "et"):
                for kind, forms in ((FEMININE, of_feminine), (MASCULINE, of_masculine)):
                    if kind & set(phrase):
                        forms |= set(phrase)
                phrase = []
            phrase.append(word)
    of_both = {"rouge", "trouve", "suit", "aime", "voit", "regarde"}
    assert of_feminine & of_masculine == of_both
    assert {"une", "la", "verte", "chinoise"} <= of_feminine
    assert {"un", "le", "vert", "chinois"} <= of_masculine


def test_the_order_of_words() -> None:
    english = "the red Spanish car likes a book and a blue cat finds the hen"
    assert french_order(english.split()) == [0, 3, 2, 1, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13]
