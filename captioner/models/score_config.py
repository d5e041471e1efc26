"""Score functions by name: the package's and those of other packages; imports no torch."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from captioner.errors import UserError, did_you_mean, near_names
from captioner.schema import Config

if TYPE_CHECKING:
    from captioner.attention.scores import Score

GROUP = "captioner.scores"
"""Of entry points: `name = "module:Class"`, a `Score` made of the sizes H, D and A."""

_CLASSES = {
    "additive": "AdditiveScore",
    "concat": "ConcatScore",
    "dot": "DotScore",
    "general": "GeneralScore",
    "scaled_dot": "ScaledDotProductScore",
    "cosine": "CosineScore",
}
SAME_SIZE = ("dot", "scaled_dot")
"""Scores that compare a query with a value as it is, so that H = D."""


def scores() -> dict[str, EntryPoint]:
    """The score functions by name, the package's own first."""
    module = "captioner.attention.scores"
    ours = {name: EntryPoint(name, f"{module}:{kind}", GROUP) for name, kind in _CLASSES.items()}
    return ours | {
        point.name: point for point in entry_points(group=GROUP) if point.name not in ours
    }


def _known(name: str) -> str:
    # The packages of an environment are read for other names alone.
    if name not in _CLASSES and name not in (known := scores()):
        near = did_you_mean(near_names(name, known))
        raise ValueError(f"{name!r} is not one of {', '.join(known)}{near}")
    return name


ScoreName = Annotated[
    str,
    AfterValidator(_known),
    Field(description=f"{', '.join(_CLASSES)}, or one of another package"),
]


class ScoreConfig(Config):
    """How a place is scored."""

    kind: ScoreName = "additive"
    activation: Literal["tanh", "relu"] = Field(
        "tanh", description="of additive; in the paper tanh"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.activation != "tanh" and self.kind != "additive":
            raise ValueError(f"activation {self.activation!r} is for kind additive")
        return self


def make_score(name: str, query_size: int, memory_size: int, attention_size: int) -> Score:
    """The score function of a name, for queries (.., H) and values (.., D); with keys (.., A)."""
    try:
        score: Score = scores()[name].load()(query_size, memory_size, attention_size)
    except Exception as error:  # Of code that is not ours.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"the score {name!r} cannot be made: {reason}") from None
    return score
