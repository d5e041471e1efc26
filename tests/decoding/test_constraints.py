import torch
from hypothesis import given
from hypothesis import strategies as st
from table_decoder import END, allowed_next, has_repeat

from captioner.decoding.constraints import IMPOSSIBLE, Constraints, trigram_keys

BLOCKED = float("-inf")


def left(constraints: Constraints, tokens: list[int], vocabulary_size: int = 5) -> list[int]:
    """Which tokens are left after these."""
    history = torch.tensor([[tokens]], dtype=torch.long)
    values = torch.full((1, 1, vocabulary_size), -2.0)
    constraints.block(values, history, END)
    assert set(values.flatten().tolist()) <= {-2.0, BLOCKED}  # what is left keeps its value
    return [token for token in range(vocabulary_size) if values[0, 0, token] > BLOCKED]


def test_only_trigrams_that_people_wrote_by_hand() -> None:
    # With 0 for the start: 2 3 <end>, and 3 4 2 <end>.
    known = [(0, 0, 2), (0, 2, 3), (2, 3, END), (0, 0, 3), (0, 3, 4), (3, 4, 2), (4, 2, END)]
    first, second, third = torch.tensor(sorted(known)).unbind(dim=1)
    constraints = Constraints(trigrams=trigram_keys(first, second, third, 5))
    for tokens, expected in {
        (): [2, 3],
        (2,): [3],
        (2, 3): [END],
        (3, 4): [2],
        (3, 4, 2): [END],
        (4,): [END],  # Nobody began so: nothing is left but to end.
    }.items():
        assert left(constraints, list(tokens)) == expected


def test_words_that_people_keep_apart_by_hand() -> None:
    # With 0 for the start: every trigram of 2, 3 and 4 is known, and 4 does not come after 2.
    triples = {(0, 0, a) for a in (2, 3, 4)} | {(0, a, b) for a in (2, 3, 4) for b in (2, 3, 4)}
    triples |= {(a, b, c) for _, a, b in triples if a for c in (2, 3, 4)} | {(2, 0, 4)}
    first, second, third = torch.tensor(sorted(triples)).unbind(dim=1)
    constraints = Constraints(trigrams=trigram_keys(first, second, third, 5))
    assert left(constraints, []) == [2, 3, 4]
    assert left(constraints, [2]) == [2, 3]
    assert left(constraints, [2, 3, 3]) == [2, 3]
    assert left(constraints, [4, 3]) == [2, 3, 4]


def test_an_ending_the_model_rules_out_counts_as_impossible() -> None:
    def blocked(constraints: Constraints, tokens: list[int]) -> list[float]:
        values = torch.tensor([[[-1.0, BLOCKED, -0.5]]])
        constraints.block(values, torch.tensor([[tokens]], dtype=torch.long), END)
        return values.flatten().tolist()

    assert blocked(Constraints(maximum_length=1), [2]) == [BLOCKED, IMPOSSIBLE, BLOCKED]
    assert blocked(Constraints(forbidden=(0, 2)), []) == [BLOCKED, IMPOSSIBLE, BLOCKED]
    assert blocked(Constraints(), []) == [-1.0, BLOCKED, -0.5]  # where something else is left


@given(
    tokens=st.lists(st.sampled_from([0, 2, 3]), max_size=9),
    n=st.integers(0, 4),
    minimum=st.integers(0, 4),
    forbidden=st.sets(st.integers(0, 3)),
    distance=st.integers(0, 4),
    repeatable=st.sets(st.integers(0, 3)),
)
def test_equals_the_rule_written_plainly(
    tokens, n, minimum, forbidden, distance, repeatable
) -> None:
    constraints = Constraints(
        minimum_length=minimum,
        maximum_length=9,
        block_ngrams=n,
        forbidden=tuple(sorted(forbidden)),
        repeat_distance=distance,
        repeatable=tuple(sorted(repeatable)),
    )
    if not (n and has_repeat(tokens, n)):
        assert left(constraints, tokens, 4) == allowed_next(tokens, [-2.0] * 4, constraints)
