import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "notebooks" / "french.py"))
ADJECTIVES, NOUNS = SCRIPT["ADJECTIVES"], SCRIPT["NOUNS"]
french_order, french_pairs = SCRIPT["french_order"], SCRIPT["french_pairs"]


def test_pairs() -> None:
    pairs = french_pairs(200, seed=3, fewest=1, most=3)
    assert len({pair.source for pair in pairs}) == 200
    assert pairs == french_pairs(200, seed=3, fewest=1, most=3)
    assert pairs != french_pairs(200, seed=4, fewest=1, most=3)
    clauses = [pair.source.split().count("and") + 1 for pair in pairs]
    assert set(clauses) == {1, 2, 3}
    assert [pair.target.split().count("et") + 1 for pair in pairs] == clauses


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
