"""The decoder loop over any stepper, and the ranking of finished hypotheses.

Imports no torch. A step, with all rules of the search, runs as torch code on any device
(`captioner.decoding.loop`) or as an ONNX graph exported from it (`captioner.backends`).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from captioner.arrays import Array, Values
from captioner.errors import UserError


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One decoded sequence.

    tokens: the T tokens after the start token, without the end token. Every hypothesis has ended.
    log_probability: of the tokens and the end token, in nats, under the model itself: temperature
        1, nothing blocked.
    token_log_probabilities: its T + 1 terms.
    score: for ranking: the log-probability after length normalisation, plus the coverage penalty.
    attention: (T, L), float32; row t is the map of token t. (T, 0) if none is kept.
    cut: whether the maximum length ended it, although the model gave the end a probability below
        one half. It ranks last: normalisation by length favours loops.
    """

    tokens: list[int]
    log_probability: float
    token_log_probabilities: list[float]
    score: float
    attention: Array
    cut: bool = False


class StepChoices(NamedTuple):
    """A step's choices for K rows of B sources, (B, K) each: arrays, or tensors.

    parents: the row of the step before that each continues. tokens: the next ones. terms: their
    log-probabilities. weights: (B, K, L), their attention; (B, K, 0) if none is kept. is_end:
    whether the token ends a hypothesis, then of these scores, and cut by the maximum length.
    """

    parents: Values
    tokens: Values
    terms: Values
    weights: Values
    is_end: Values
    scores: Values
    is_cut: Values


OwnBeam = TypeVar("OwnBeam")  # A stepper's own type.
Advanced = tuple[OwnBeam, StepChoices, Values]
"""A step: the beam after it, its choices, and how many rows of each source are live, (B,).
A count of -1 marks logits that are NaN. Live rows stand before the others."""


class Stepper(Protocol[OwnBeam]):
    """Computes the steps of a search of B sources; each stepper has its own type of beam."""

    @property
    def batch_size(self) -> int:
        """B, the number of sources."""

    @property
    def drops_finished(self) -> bool:
        """Whether rows that have ended may be left out."""

    def start(self) -> OwnBeam:
        """The beam before the first step, with one row a source."""

    def advance(self, beam: OwnBeam) -> Advanced[OwnBeam]:
        """Extend every row by a token."""

    def narrow(self, beam: OwnBeam, width: int) -> OwnBeam:
        """Keep the first `width` rows of each source."""

    def keep_sources(self, beam: OwnBeam, sources: list[int]) -> OwnBeam:
        """Keep these sources only."""

    def to_numpy(self, arrays: list[Values]) -> list[Array]:
        """Convert arrays of one type to NumPy."""


def search_hypotheses(
    stepper: Stepper[OwnBeam],
    maximum_length: int,
    coverage_penalty: float = 0.0,
    mask: Array | None = None,
) -> list[list[Hypothesis]]:
    """Search for hypotheses of all sources in one batch, best first but cut ones last.

    maximum_length: most tokens before the end. coverage_penalty: beta of `_coverage`, for which
    mask is (B, L) boolean, False for padding.
    """
    beam = stepper.start()
    sources = list(range(stepper.batch_size))
    step_sources = []
    step_choices = []
    for _ in range(maximum_length + 1):
        following, choices, live_counts = stepper.advance(beam)
        step_sources.append(sources)
        step_choices.append(choices)
        counts = live_counts.tolist()  # The only values that a step reads.
        if min(counts) < 0:
            raise UserError("the model's output is not a number; its weights are damaged")
        if not any(counts):
            break
        beam = following
        if not stepper.drops_finished:
            continue
        beam = stepper.narrow(beam, max(counts))
        if 2 * counts.count(0) >= len(counts):
            # Drop ended sources once half have ended: the copy is at most half the memory.
            kept = [index for index, rows in enumerate(counts) if rows]
            beam = stepper.keep_sources(beam, kept)
            sources = [sources[index] for index in kept]
    fields = [stepper.to_numpy(list(field)) for field in zip(*step_choices, strict=True)]
    steps = [StepChoices(*arrays) for arrays in zip(*fields, strict=True)]
    tree = list(zip(step_sources, steps, strict=True))
    ranked: list[list[Hypothesis]] = [[] for _ in range(stepper.batch_size)]
    for last, (sources, choices) in enumerate(tree):
        for place, row in np.argwhere(choices.is_end).tolist():
            source = sources[place]
            source_mask = None if mask is None else mask[source]  # (L,)
            hypothesis = _path(tree[: last + 1], source, row, coverage_penalty, source_mask)
            ranked[source].append(hypothesis)
    for hypotheses in ranked:
        hypotheses.sort(key=lambda hypothesis: (hypothesis.cut, -hypothesis.score))
    return ranked


def _path(
    tree: list[tuple[list[int], StepChoices]],
    source: int,
    row: int,
    coverage_penalty: float,
    mask: Array | None,
) -> Hypothesis:
    """Follow the parents of a row that ends in the last step back to the start."""
    tokens: list[int] = []
    terms = []
    maps = []
    sources, ended = tree[-1]
    end = sources.index(source), row
    for sources, choices in reversed(tree):
        place = sources.index(source), row
        tokens.append(int(choices.tokens[place]))
        terms.append(float(choices.terms[place]))
        maps.append(choices.weights[place])  # (L,)
        row = int(choices.parents[place])
    attention = np.stack(maps[::-1])  # (T + 1, L), the end's last
    score = float(ended.scores[end])
    if coverage_penalty > 0:
        score += coverage_penalty * _coverage(attention, mask)
    return Hypothesis(
        tokens=tokens[:0:-1],
        log_probability=sum(terms),
        token_log_probabilities=terms[::-1],
        score=score,
        attention=attention[:-1],
        cut=bool(ended.is_cut[end]),
    )


def _coverage(attention: Array, mask: Array | None) -> float:
    """The coverage penalty cp of Wu et al. 2016, equation 14 (GNMT), without its beta.

    sum_i log(min(sum_t p_ti, 1)) of the attention p (T, L), the end token's last. A position with a
    total of 1 or more adds nothing, a neglected one lowers the score; beta is 0.2 in the paper.
    mask: (L,) boolean, False for padding, which is left out.
    """
    received = attention.sum(axis=0)  # (L,)
    if mask is not None:
        received = received[mask]
    return float(np.log(received.clip(1e-10, 1.0)).sum())  # Not log(0).
