"""What a user may ask of the search, for every model alike."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from captioner.decoding.constraints import Constraints
from captioner.decoding.length import LengthNormalisation
from captioner.decoding.strategies import BeamSearch, Sampling
from captioner.errors import UserError


@dataclass(frozen=True)
class SearchOptions:
    """How captions and translations are searched for.

    beam: beam size K; 1 is greedy search. n_best: how many are returned for a photo or sentence, at
        most K.
    length_normalisation: alpha of GNMT's formula; 0 for none.
    minimum_length, maximum_length: tokens, which of captions are words. block_ngrams: no n-gram
        twice; 0 for no such rule.
    repeat_distance: a token is not said again among the so many after it, but for function words
        ("a", "in"; of captions only); 0 for no such rule.
    sample: draw instead of searching for the most probable: n_best of them, with temperature, top_k
        and top_p as in `captioner.decoding.Sampling`, from `seed`.

    Raises `UserError` for values out of range.
    """

    beam: int = 5
    n_best: int = 1
    length_normalisation: float = 0.0
    minimum_length: int = 1
    maximum_length: int = 40
    block_ngrams: int = 0
    repeat_distance: int = 0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_best < 1:
            raise UserError(f"n-best {self.n_best} is not at least 1")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed {self.seed} is not between 0 and 2 to the power of 63")
        self._beam_search()  # Both, since what is not used must be in range as well.
        self._sampling()
        if not self.sample and self.n_best > self.beam:
            raise UserError(f"n-best {self.n_best} is more than the beam size, {self.beam}")
        self.constraints(())
        LengthNormalisation(self.length_normalisation)

    def strategy(self, generator: torch.Generator | None = None) -> BeamSearch | Sampling:
        """The search strategy these options describe.

        generator: what is drawn from, for one that goes on over several calls; by default a new
            one from `seed`.
        """
        return self._sampling(generator) if self.sample else self._beam_search()

    def generator(self) -> torch.Generator:
        """A new generator from `seed`."""
        return torch.Generator().manual_seed(self.seed)

    def _beam_search(self) -> BeamSearch:
        return BeamSearch(self.beam)

    def _sampling(self, generator: torch.Generator | None = None) -> Sampling:
        return Sampling(
            generator or self.generator(), self.n_best, self.temperature, self.top_k, self.top_p
        )

    def constraints(
        self, forbidden: tuple[int, ...], repeatable: tuple[int, ...] = ()
    ) -> Constraints:
        """The constraints these options describe, with tokens never chosen and free to repeat."""
        return Constraints(
            self.minimum_length,
            self.maximum_length,
            self.block_ngrams,
            forbidden,
            self.repeat_distance,
            repeatable,
        )
