"""Whatever a config holds, it becomes the section or a sentence that names the field."""

import math
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.errors import UserError
from captioner.schema import Config, FilePath, from_mapping, to_mapping


class Inner(Config):
    size: int = Field(ge=1, le=99, description="how large")
    share: float = Field(0.5, description="of the whole")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.size == 13:
            raise ValueError("size 13 is unlucky")
        return self


class Outer(Config):
    name: str
    flag: bool = False
    rate: float = Field(1.0, description="a rate")
    level: float = Field(0.5, gt=0, lt=1)
    kind: Literal["one", "two"] = "one"
    place: FilePath | None = None
    inner: Inner = Field(default_factory=lambda: Inner(size=1))
    maybe: Inner | None = None
    numbers: list[int] = Field(default_factory=list)
    words: tuple[str, ...] = Field((), strict=False)
    triple: tuple[float, float, float] = Field((0.0, 0.0, 0.0), strict=False)
    scores: dict[str, float] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"nmae": 1}, "unknown field 'nmae'; did you mean 'name'\\?"),
        ({"size": 1}, "unknown field 'size'; did you mean 'inner.size' or 'maybe.size'\\?"),
        ({"inner": {"sise": 1}}, "unknown field 'inner.sise'; did you mean 'inner.size'\\?"),
        ({"zzz": 1}, "unknown field 'zzz'; the fields are flag, inner, .* words$"),
        ({"name": 3}, "name should be a valid string, found 3"),
        ({"flag": 1}, "flag should be a valid boolean, found 1"),
        ({"rate": "1"}, "rate should be a valid number, found '1'"),
        ({"rate": math.nan}, "rate should be a finite number, found nan"),
        ({"rate": 16**5000}, "rate should be .*, found something too large to show"),
        ({"level": 0}, "level should be greater than 0, found 0$"),
        ({"kind": "twoo"}, "kind 'twoo' is not one of one, two; did you mean 'two'\\?$"),
        ({"place": 3}, "place is not a valid path .*, found 3"),
        ({"inner": []}, r"inner should be fields with values, found \[\]"),
        ({"inner": {}}, "field 'inner.size' is missing"),
        ({"inner": {"size": 0}}, "inner.size should be greater than or equal to 1, found 0"),
        ({"inner": {"size": 13}}, "inner.size 13 is unlucky"),
        ({"numbers": [1, True]}, r"numbers\[1\] should be a valid integer, found True"),
        ({"triple": [1, 2, 3, 4]}, "triple should have at most 3 items"),
        ({"name": ["long"] * 50}, "name should be a valid string, found .{57}\\.\\.\\.$"),
    ],
)
def test_wrong_values_are_named(change: dict[Any, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=f"^c: {sentence}"):
        from_mapping(Outer, {"name": "x", **change}, "c")


NAMES = [*Outer.model_fields, "size", "share"]
WORDS = ["unknown field", *NAMES]
NUMBERS = st.booleans() | st.integers() | st.just(10**400) | st.floats()
LEAVES = NUMBERS | st.none() | st.text(max_size=5) | st.binary(max_size=3) | st.dates()
KEYS = st.sampled_from(NAMES) | st.text(max_size=3) | st.integers() | st.none()
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.fixed_dictionaries({"size": inner}, optional={"share": inner})
    ),
    max_leaves=10,
)


@given(
    mapping=VALUES
    | st.dictionaries(KEYS, VALUES, max_size=6)
    | st.fixed_dictionaries({"name": st.text()}, optional=dict.fromkeys(NAMES[1:-2], VALUES))
)
def test_any_value_gives_the_section_or_names_the_field(mapping: Any) -> None:
    try:
        built = from_mapping(Outer, mapping, "file")
        assert from_mapping(Outer, to_mapping(built), "file") == built
    except UserError as error:
        sentence = str(error)
        assert sentence.startswith("file: ")
        assert "\n" not in sentence
        assert not isinstance(mapping, dict) or any(name in sentence for name in WORDS)


def test_values_from_python_and_changed_copies_are_checked() -> None:
    refused = r"^inner.size should be greater than or equal to 1, found 0$"
    with pytest.raises(UserError, match=refused):
        Outer(name="x", inner={"size": 0})  # type: ignore[arg-type]
    assert Inner(size=3).replace(share=1) == Inner(size=3, share=1.0)
    with pytest.raises(UserError, match=r"^size should be less than or equal to 99, found 100$"):
        Inner(size=3).replace(size=100)
    with pytest.raises(UserError, match=r"^c: should be fields with values, found 'name'$"):
        from_mapping(Outer, "name", "c")
