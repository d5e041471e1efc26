"""CIDEr-D as a reward is CIDEr-D."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.cider_reward import CiderReward

sentences = st.lists(st.integers(0, 5), max_size=9)
corpora = st.lists(st.lists(sentences, min_size=1, max_size=4), min_size=2, max_size=6)


def words(sentence: list[int]) -> list[str]:
    return [str(number) for number in sentence]


@given(corpora, st.data())
def test_the_reward_is_cider_d(references: list[list[list[int]]], data: st.DataObject) -> None:
    """Also for images asked for several times or never, and for words that no reference has."""
    caption = st.lists(st.integers(0, 8), max_size=9)
    images = data.draw(st.lists(st.integers(0, len(references) - 1), min_size=1, max_size=8))
    captions = [data.draw(caption) for _ in images]
    found = CiderReward(references)(np.array(images), captions)
    texts = [[words(sentence) for sentence in image] for image in references]
    expected = cider_d(
        [words(sentence) for sentence in captions],
        [texts[image] for image in images],
        DocumentFrequency.from_references(texts),
    ).per_image
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_a_reference_given_back_is_worth_ten_where_it_is_the_only_one() -> None:
    reward = CiderReward([[[1, 2, 3, 4, 5]], [[6, 7, 8]], [[6, 9, 9, 9]]])
    found = reward(np.array([0, 1, 0]), [[1, 2, 3, 4, 5], [6, 7, 8], [6, 7, 8]])
    # Three words have no n-gram of four: three of the four cosines are 1.
    np.testing.assert_allclose(found, [10.0, 7.5, 0.0], atol=1e-9)


def test_no_captions_have_no_rewards() -> None:
    assert CiderReward([[[1]], [[2]]])(np.zeros(0, dtype=np.int64), []).shape == (0,)


def test_one_image_has_no_document_frequency() -> None:
    with pytest.raises(UserError, match="needs at least 2 images, not 1"):
        CiderReward([[[1, 2]]])


def test_an_image_without_a_reference_is_refused() -> None:
    with pytest.raises(UserError, match="image number 1 has no list of reference captions"):
        CiderReward([[[1]], [], [[2]]])
