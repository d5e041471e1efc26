"""Computations written out for CPUs: the same results as the plain torch code, in less time.

Only bfloat16, chosen for captioning and translating on a CPU with instructions for it, changes
results.
`enabled` is the only switch; with it off every model runs plain torch code. A computation is in
this room because it takes at least a tenth off a user's work. Without it, the captioner's training
step takes 1.5 times as long (batch of 80, float32, one core), and its beam search of 32 photos at
once 2.4 times.
"""

from captioner.cpu.additive import additive_scores, exponentials
from captioner.cpu.precision import choose_precision, default_machine, in_chunks
from captioner.cpu.recurrence import Recurrence, RecurrenceInputs, RecurrenceWeights
from captioner.cpu.switch import SWITCH, enabled

__all__ = [
    "SWITCH",
    "Recurrence",
    "RecurrenceInputs",
    "RecurrenceWeights",
    "additive_scores",
    "choose_precision",
    "default_machine",
    "enabled",
    "exponentials",
    "in_chunks",
]
