"""Greedy, beam and sampling search for every model that follows the `Decoder` protocol.

Modules are imported on first use, so that the command line shows the search options without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner.decoding.constraints import Constraints as Constraints
    from captioner.decoding.loop import BeamSearch as BeamSearch
    from captioner.decoding.loop import Choice as Choice
    from captioner.decoding.loop import Sampling as Sampling
    from captioner.decoding.loop import Strategy as Strategy
    from captioner.decoding.loop import decode as decode
    from captioner.decoding.options import SearchOptions as SearchOptions
    from captioner.decoding.options import TranslationSearch as TranslationSearch
    from captioner.decoding.protocol import Decoder as Decoder
    from captioner.decoding.protocol import Hypothesis as Hypothesis
    from captioner.decoding.protocol import SequenceDecoder as SequenceDecoder
    from captioner.decoding.protocol import Step as Step
    from captioner.decoding.protocol import TeacherForced as TeacherForced
    from captioner.decoding.protocol import cross_entropies as cross_entropies
    from captioner.decoding.protocol import select_rows as select_rows

_NAMES = {
    "constraints": ("Constraints",),
    "loop": ("BeamSearch", "Choice", "Sampling", "Strategy", "decode"),
    "options": ("SearchOptions", "TranslationSearch"),
    "protocol": (
        *("Decoder", "Hypothesis", "SequenceDecoder", "Step", "TeacherForced"),
        *("cross_entropies", "select_rows"),
    ),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
