"""The rules of the search in NumPy against `Constraints`."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioner.decoding.options import SearchOptions
from captioner.onnx.search import Rules

SIZE = 12
REPEATABLE = (5, 7)
ROW = st.lists(st.integers(4, SIZE - 1), min_size=6, max_size=6)


@given(
    history=st.lists(ROW, min_size=2, max_size=2),
    length=st.integers(0, 6),
    options=st.builds(
        SearchOptions,
        minimum_length=st.integers(0, 4),
        maximum_length=st.integers(4, 6),
        block_ngrams=st.integers(0, 3),
        repeat_distance=st.integers(0, 5),
    ),
    keys=st.none() | st.sets(st.integers(0, SIZE**4 - 1), min_size=1, max_size=800),
)
def test_rules_are_those_of_constraints(history, length, options, keys) -> None:
    known = None if keys is None else np.array(sorted(keys))
    tokens = np.array(history, np.int64)[:, :length].reshape(1, 2, length)
    terms = np.log(np.random.default_rng(len(history)).dirichlet(np.ones(SIZE), (1, 2)))
    wanted = torch.tensor(terms)
    tensor = None if known is None else torch.tensor(known)
    fields = {"forbidden": (0, 1, 3), "repeatable": REPEATABLE, "ngrams": tensor, "start": 1}
    options.constraints(**fields).block(wanted, torch.tensor(tokens), 2)
    repeatable = np.isin(np.arange(SIZE), REPEATABLE)
    Rules(options, repeatable, known).block(terms, tokens)
    np.testing.assert_array_equal(terms, wanted.numpy())
