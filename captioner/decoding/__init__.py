"""Decoding, written once against the `Decoder` protocol: it does not know the model it decodes."""

from captioner.decoding.constraints import Constraints
from captioner.decoding.coverage import CoveragePenalty
from captioner.decoding.length import LengthNormalisation
from captioner.decoding.likelihood import CrossEntropies, cross_entropies, cross_entropy
from captioner.decoding.loop import decode, greedy
from captioner.decoding.options import SearchOptions
from captioner.decoding.protocol import Decoder, Hypothesis, Step
from captioner.decoding.rows import select_rows
from captioner.decoding.strategies import BeamSearch, Choice, Sampling, Strategy

__all__ = [
    "BeamSearch",
    "Choice",
    "Constraints",
    "CoveragePenalty",
    "CrossEntropies",
    "Decoder",
    "Hypothesis",
    "LengthNormalisation",
    "Sampling",
    "SearchOptions",
    "Step",
    "Strategy",
    "cross_entropies",
    "cross_entropy",
    "decode",
    "greedy",
    "select_rows",
]
