from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from captioner.evaluation.corpus import Corpus

words = st.lists(st.sampled_from(["a", "dog", "22\xa03/4", "555\xa0123 4567", "\xa0"]), max_size=5)


@given(st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_splitting_equals_a_corpus_of_split_words(
    pairs: list[tuple[list[str], list[list[str]]]],
) -> None:
    def split(tokens: list[str]) -> list[str]:
        return " ".join(tokens).split()

    found = Corpus.of([own for own, _ in pairs], [others for _, others in pairs]).split
    expected = Corpus.of(
        [split(own) for own, _ in pairs],
        [[split(tokens) for tokens in others] for _, others in pairs],
    )
    assert list(found.captions) == list(expected.captions)
    assert list(found.references) == list(expected.references)
    assert found.lengths.tolist() == expected.lengths.tolist()
