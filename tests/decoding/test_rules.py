"""The hash table of n-grams against a set of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioner.decoding.constraints import ngrams_of_table
from captioner.decoding.rules import ORDER, is_in_table, ngram_keys, ngram_table, table_file


@given(
    st.integers(4, 12),
    st.sampled_from([1e-3, 0.02, 0.3, 1]),
    st.integers(1, 5),
    st.integers(0, 9),
)
def test_a_table_has_its_keys_and_no_others(size, share, copies, seed) -> None:
    generator = np.random.default_rng(seed)
    known = np.flatnonzero(generator.random(size**ORDER) < share)
    table = ngram_table(generator.permutation(np.repeat(known, copies)), size)
    asked = np.unique([*known[:200], *generator.integers(size**ORDER, size=200)])
    found = [is_in_table(table, int(key), size) for key in asked]
    assert found == np.isin(asked, known).tolist()
    ngrams = ngrams_of_table(torch.from_numpy(table), size)
    assert ngram_keys(ngrams.unbind(dim=1), size).tolist() == known.tolist()


@pytest.mark.parametrize("size", [2221, 55_108])
def test_the_file_of_a_table_is_hardly_larger_than_its_keys(size: int) -> None:
    ngrams = np.random.default_rng(0).integers(size, size=(4, 30_000))
    ngrams[:3, 10_000:] = ngrams[:3, :200].repeat(100, axis=1)  # Many tokens behind the same words.
    keys = np.unique(ngram_keys(list(ngrams), size))
    table = ngram_table(keys, size)
    assert len(table) <= 2 * len(keys) + size + 3
    assert np.isin(keys, table).all()
    stored = np.frombuffer(table_file(table, size), "<i8")
    assert len(stored) <= 1.25 * len(keys) + size + 3
    assert np.unique(stored[stored >= 0]).tolist() == keys.tolist()
