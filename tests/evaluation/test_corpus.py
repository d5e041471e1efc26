from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.evaluation.bleu import bleu
from captioner.evaluation.cider import cider_d
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.rouge import rouge_l

GOOD = [["a", "dog"]]


@pytest.mark.parametrize("metric", [bleu, cider_d, rouge_l])
@pytest.mark.parametrize(
    ("hypotheses", "references", "sentence"),
    [
        ([], [], "no captions"),
        ([["a"], ["b"]], [GOOD], "2 captions to score but references for 1 images"),
        ([["a"], ["b"]], [GOOD, []], "image number 1 has no list of reference captions"),
        ([["a"], ["b"]], [GOOD, "a dog"], "image number 1 has no list of reference captions"),
        ([["a"], "b c"], [GOOD, GOOD], "image number 1 is a string"),
        ([["a"], ["b"]], [["a dog"], GOOD], "image number 0 is a string"),
    ],
)
def test_what_cannot_be_scored_is_refused(metric, hypotheses, references, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        metric(hypotheses, references)


words = st.lists(st.sampled_from(["a", "dog", "22\xa03/4", "555\xa0123 4567", "\xa0"]), max_size=5)


@given(st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_splitting_equals_a_corpus_of_split_words(
    pairs: list[tuple[list[str], list[list[str]]]],
) -> None:
    def split(tokens: list[str]) -> list[str]:
        return " ".join(tokens).split()

    found = Corpus.of([own for own, _ in pairs], [others for _, others in pairs]).split()
    expected = Corpus.of(
        [split(own) for own, _ in pairs],
        [[split(tokens) for tokens in others] for _, others in pairs],
    )
    assert [list(tokens) for tokens in found.sentences] == expected.sentences
    assert found.lengths.tolist() == expected.lengths.tolist()
    names = {number: word for word, number in found.numbers.items()}
    assert [names[number] for number in found.words.tolist()] == list(
        chain.from_iterable(expected.sentences)
    )
