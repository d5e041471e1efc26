"""The rules of a search, declared once: torch, the graphs and the page take these arrays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from captioner.arrays import Array, Values
from captioner.decoding.options import AnySearch
from captioner.text.vocabulary import Vocabulary

ORDER = 4
"""The n of the n-grams that a search keeps to. Triples would allow "playing on a basketball":
people write "playing on a" and "on a basketball court"."""
LIKELIEST = 64  # Tokens of a step that are looked up among the n-grams.
PLACES = 3  # Of an n-gram in a table.
IMPOSSIBLE = -1e4
"""Floor on an end token's log-probability where nothing else is left; finite, so that the
hypothesis can be ranked and saved as JSON."""

_MOST_ROUNDS = 1000  # Of a table, before it gets larger; half a million keys take 300.
_CHUNK = 2**15  # Keys of a round, which a CPU's caches hold.


class Rules(NamedTuple):
    """Limits on hypotheses: arrays of NumPy, tensors of torch, or inputs of a graph.

    The table of all rules: a graph has an input for each, of its name and type. Lengths count
    tokens without the end token. A rule that is off has a neutral value, with which it blocks
    nothing; torch leaves it out, as None.
    """

    forbidden: Values
    """(V,) boolean: tokens that are never chosen (padding, start, unknown), the end aside."""

    minimum_length: Values
    """() integer: the end token is blocked before this many tokens."""

    maximum_length: Values
    """() integer: after this many tokens all but the end token are blocked."""

    repeatable: Values
    """(V,) boolean: tokens exempt from `repeat_distance` (articles, prepositions)."""

    repeat_distance: Values
    """() integer: a token is blocked for this many tokens after it; neutral: 0."""

    context: Values
    """(n - 1,) integers: no n-gram occurs twice; steps back from the newest token, 0 to n - 2.

    Neutral: one step that is longer than every hypothesis.
    """

    ngram_table: Values = None
    """`ngram_table` of the n-grams of tokens that people wrote, n being `ORDER`.

    No other n-gram occurs in a hypothesis, except before an end where nothing else is left. Only
    the `LIKELIEST` tokens of a step are candidates. An n-gram (a, `start`, `start`, b), which no
    sentence has, encodes a clash: b may not follow the word a at any distance. None of a model
    without n-grams, whose graph has no such input.
    """

    def inputs(self) -> dict[str, Array]:
        """The inputs of a graph, by name."""
        return {name: array for name, array in self._asdict().items() if array is not None}


@dataclass(frozen=True)
class Constraints:
    """The limits that a search sets, with what the vocabulary adds; see `Rules`.

    forbidden, repeatable: tokens. ngram_table: of NumPy, or of torch on the model's device.
    begin: the tokens of a given beginning.
    """

    search: AnySearch = field(default_factory=AnySearch)
    forbidden: tuple[int, ...] = ()
    repeatable: tuple[int, ...] = ()
    ngram_table: Values = None
    begin: tuple[int, ...] = ()

    def steps(self, vocabulary_size: int) -> list[Rules]:
        """The rules of each step of the given beginning, then those of all later steps.

        The first forbid all tokens but one, and let words repeat.
        """
        free = replace(self, search=AnySearch(maximum_length=self.search.maximum_length))
        rules, tokens = free.rules(vocabulary_size), np.arange(vocabulary_size)
        forced = [rules._replace(forbidden=tokens != token) for token in self.begin]
        return [*forced, self.rules(vocabulary_size)]

    def rules(self, vocabulary_size: int) -> Rules:
        """The rules as arrays of NumPy."""
        search = self.search
        tokens = np.arange(vocabulary_size)
        block, beyond = search.block_ngrams, search.maximum_length + 1
        return Rules(
            forbidden=np.isin(tokens, self.forbidden),
            minimum_length=np.array(max(search.minimum_length, len(self.begin))),
            maximum_length=np.array(search.maximum_length),
            repeatable=np.isin(tokens, self.repeatable),
            repeat_distance=np.array(search.repeat_distance),
            context=np.arange(block - 1) if block else np.array([beyond]),
            ngram_table=self.ngram_table,
        )


def ngram_keys(tokens: Iterable[Values], vocabulary_size: int) -> Values:
    """A number for each n-gram of up to 55,108 words, in their order.

    tokens: the first, second, ... of all n-grams: numbers, int64 arrays or tensors of one shape.
    """
    keys: Values = 0
    for token in tokens:
        keys *= vocabulary_size  # In place: at a start new memory takes longer than the products.
        keys += token
    return keys


def ngram_table(keys: Array, vocabulary_size: int, filled: float = 0.5) -> Array:
    """A hash table of `ngram_keys` (N,); -1 is an empty cell.

    Where M is its size without V, the key of some words and a token is at one of the `PLACES`
    (key of the words % (M - i)) + token, so that the tokens behind the same words lie together.

    Cuckoo hashing (Pagh and Rodler 2004; Fotakis et al. 2005, with more than two places): a key
    takes a place, and the one that it displaces takes another.

    filled: share of the cells; half a million keys take 20 ms at 0.5, and 50 at 0.8.
    """
    modulus = int(len(keys) / filled) + PLACES
    while True:
        table = np.full(modulus + vocabulary_size, -1)
        chunks = np.array_split(keys, len(keys) // _CHUNK + 1)
        left = keys[:0]
        for number in range(_MOST_ROUNDS):
            if number < len(chunks):
                left = np.concatenate([left, chunks[number]])
            elif not len(left):
                return table
            tokens = left % vocabulary_size
            # Not drawn: importing NumPy's generators takes 9 ms.
            moduli = modulus - (left ^ 7919 * number) % PLACES
            places = (left - tokens) % moduli + tokens
            displaced = table[places]
            table[places] = left  # Of several keys at a place the last stays.
            stays = table[places] == left
            displaced = displaced[stays & (displaced >= 0) & (displaced != left)]
            left = np.concatenate([left[~stays], displaced])
        modulus += modulus // 8


def table_file(table: Array, vocabulary_size: int) -> bytes:
    """Serialise a table as little-endian int64, with 0.8 of the cells filled."""
    keys = np.unique(table[table >= 0])
    return ngram_table(keys, vocabulary_size, filled=0.8).astype("<i8").tobytes()


def sentence_keys(tokens: Sequence[int], vocabulary_size: int) -> Array:
    """The `ngram_keys` (T,) of T tokens, with starts before them."""
    padded = np.array([*[Vocabulary.start] * (ORDER - 1), *tokens], np.int64)
    columns = [padded[place:][: len(tokens)] for place in range(ORDER)]
    return np.asarray(ngram_keys(columns, vocabulary_size))


def is_in_table(table: Values, key: int, vocabulary_size: int) -> bool:
    """Whether a table has a key."""
    token = key % vocabulary_size
    modulus = len(table) - vocabulary_size
    places = [(key - token) % (modulus - number) + token for number in range(PLACES)]
    return any(int(table[place]) == key for place in places)
