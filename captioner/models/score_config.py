"""Score functions by name: the package's and those of other packages; imports no torch."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from captioner.errors import refuse_errors
from captioner.schema import Config, not_one_of

if TYPE_CHECKING:
    from captioner.attention.scores import Score

GROUP = "captioner.scores"
"""Of entry points: `name = "module:Class"`, a `Score` made of the sizes H, D and A."""

_MODULE = "captioner.attention.scores"
_CLASSES = {
    "additive": "AdditiveScore",
    "concat": "ConcatScore",
    "dot": "DotScore",
    "general": "GeneralScore",
    "scaled_dot": "ScaledDotProductScore",
    "cosine": "CosineScore",
}


def scores() -> dict[str, EntryPoint]:
    """The score functions by name, the package's own first."""
    ours = [EntryPoint(name, f"{_MODULE}:{kind}", GROUP) for name, kind in _CLASSES.items()]
    others = [point for point in entry_points(group=GROUP) if point.name not in _CLASSES]
    return {point.name: point for point in (*ours, *others)}


def _known(name: str) -> str:
    # The packages of an environment are read for other names alone.
    if name not in _CLASSES and name not in scores():
        raise ValueError(not_one_of(name, scores()))
    return name


_ABOUT = f"{', '.join(_CLASSES)}, or one of another package"
ScoreName = Annotated[str, AfterValidator(_known), Field(description=_ABOUT)]


class ScoreConfig(Config):
    """How a place is scored. Fields besides `kind` are options of the score's class."""

    kind: ScoreName = "additive"
    activation: Literal["tanh", "relu"] = Field("tanh", description="of additive; papers: tanh")


def make_score(name: str, *sizes: int, **options: object) -> Score:
    """The score function of a name. sizes: H of queries, D of values, and A."""
    with refuse_errors(f"the score {name!r} cannot be made"):  # By code that is not ours.
        score: Score = scores()[name].load()(*sizes, **options)
    return score
