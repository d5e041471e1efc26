"""The rules of a search, declared once: torch, the graphs and the page take these arrays."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from captioner.arrays import Array, Values
from captioner.decoding.options import AnySearch

IMPOSSIBLE = -1e4
"""Floor on an end token's log-probability where nothing else is left; finite, so that the
hypothesis can be ranked and saved as JSON."""

ANY = -1
"""Pads a phrase on the left: it matches every token, and the place before the first."""
NEVER = -2
"""In a phrase, it matches no token. onnxruntime 1.30 and a browser's fail without any phrase."""


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
    """() integer: a token blocks its class for this many tokens after it; neutral: 0."""

    classes: Values
    """(V,) integers: the class of each token, a token of it; neutral: each token itself.

    None in a translator's graph, and `phrases` too.
    """

    context: Values
    """(n - 1,) integers: no n-gram occurs twice; steps back from the newest token, 0 to n - 2.

    Neutral: one step that is longer than every hypothesis.
    """

    phrases: Values
    """(P, M) integers: the last token is blocked after the others; neutral: (1, 2), of `NEVER`."""

    def inputs(self) -> dict[str, Array]:
        """The inputs of a graph, by name."""
        return {name: array for name, array in self._asdict().items() if array is not None}


@dataclass(frozen=True)
class Constraints:
    """The limits that a search sets, with what the vocabulary adds; see `Rules`.

    forbidden, repeatable: tokens. classes: of each token; by default every token is its own.
    phrases: sequences of tokens that never occur. begin: the tokens of a given beginning.
    """

    search: AnySearch = field(default_factory=AnySearch)
    forbidden: tuple[int, ...] = ()
    repeatable: tuple[int, ...] = ()
    classes: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()
    begin: tuple[int, ...] = ()

    def steps(self, vocabulary_size: int) -> list[Rules]:
        """The rules of each step of the given beginning, then those of all later steps.

        The first forbid all tokens but one, and let words repeat.
        """
        search = AnySearch(maximum_length=self.search.maximum_length)
        free = replace(self, search=search, phrases=())
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
            classes=np.array(self.classes or tokens),
            context=np.arange(block - 1) if block else np.array([beyond]),
            phrases=self._padded_phrases(),
        )

    def _padded_phrases(self) -> Array:
        """The phrases as an array (P, M)."""
        phrases = self.phrases or ((NEVER, 0),)
        longest = max([2, *map(len, phrases)])
        padded = np.full((len(phrases), longest), ANY)
        for row, phrase in zip(padded, phrases, strict=True):
            row[-len(phrase) :] = phrase
        return padded
