"""Whatever a config holds, it becomes the dataclass or a sentence that names the field."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.fields import from_mapping, to_mapping


@dataclass(frozen=True)
class Inner:
    size: int
    share: float = 0.5

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UserError(f"size {self.size} is not at least 1")


@dataclass(frozen=True)
class Outer:
    name: str
    flag: bool = False
    rate: float = 1.0
    place: Path | None = None
    inner: Inner = field(default_factory=lambda: Inner(1))
    numbers: list[int] = field(default_factory=list)
    words: tuple[str, ...] = ()
    triple: tuple[float, float, float] = (0.0, 0.0, 0.0)
    scores: dict[str, float] = field(default_factory=dict)
    inners: list[Inner] = field(default_factory=list)


FULL = {
    "name": "x",
    "flag": True,
    "rate": 2,
    "place": "some/where",
    "inner": {"size": 3, "share": 0.25},
    "numbers": [1, 2],
    "words": ["a", "b"],
    "triple": [1, 2, 3.5],
    "scores": {"a": 1},
    "inners": [{"size": 1}, {"size": 2}],
}


def test_every_kind_of_field_is_built() -> None:
    assert from_mapping(Outer, FULL, "config") == Outer(
        name="x",
        flag=True,
        rate=2.0,
        place=Path("some/where"),
        inner=Inner(3, 0.25),
        numbers=[1, 2],
        words=("a", "b"),
        triple=(1.0, 2.0, 3.5),
        scores={"a": 1.0},
        inners=[Inner(1), Inner(2)],
    )


def test_a_whole_number_in_a_float_field_becomes_a_float() -> None:
    assert type(from_mapping(Outer, {"name": "", "rate": 2}, "config").rate) is float


def test_defaults_and_nothing() -> None:
    assert from_mapping(Outer, {"name": "x", "place": None}, "config") == Outer("x")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"nmae": 1}, "c: unknown field 'nmae'; the fields are flag, inner, .* name"),
        ({3: 1}, "c: unknown field 3"),
        ({None: 1}, "c: unknown field None"),
        ({"name": 3}, "c: name should be text, found 3"),
        ({"name": None}, "c: name should be text, found nothing"),
        ({"flag": 1}, "c: flag should be true or false, found 1"),
        ({"flag": "yes"}, "c: flag should be true or false, found 'yes'"),
        ({"rate": "1"}, "c: rate should be a number, found '1'"),
        ({"rate": True}, "c: rate should be a number, found True"),
        ({"rate": math.nan}, "c: rate should be a finite number, found nan"),
        ({"rate": 10**400}, "c: rate should be a finite number, found 1000"),
        (
            {"rate": 16**5000},
            "c: rate should be a finite number, found something too large to show",
        ),
        ({"place": 7}, "c: place should be a path, found 7"),
        ({"place": ""}, "c: place should be a path, found ''"),
        ({"place": "a\0b"}, "c: place should be a path"),
        ({"inner": []}, r"c: inner: expected fields with values, found \[\]"),
        ({"inner": None}, "c: inner: expected fields with values, found nothing"),
        ({"inner": {}}, "c: inner: field 'size' is missing"),
        ({"inner": {"size": 1.0}}, "c: inner: size should be a whole number, found 1.0"),
        ({"inner": {"size": 0}}, "c: inner: size 0 is not at least 1"),
        ({"numbers": 3}, "c: numbers should be a list, found 3"),
        ({"numbers": "12"}, "c: numbers should be a list, found '12'"),
        ({"numbers": [1, True]}, r"c: numbers\[1\] should be a whole number, found True"),
        ({"triple": [1, 2]}, "c: triple should have 3 items, found 2"),
        ({"scores": [1]}, "c: scores should be names with values"),
        ({"scores": {1: 1}}, "c: scores should be names with values"),
        ({"scores": {"a": "b"}}, "c: scores.a should be a number"),
        ({"inners": [{"size": 1}, {"size": -1}]}, r"c: inners\[1\]: size -1 is not at least 1"),
        ({"name": ["long"] * 50}, "c: name should be text, found .{57}\\.\\.\\.$"),
    ],
)
def test_wrong_values_are_named(change: dict[Any, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{sentence}"):
        from_mapping(Outer, {"name": "x", **change}, "c")


@pytest.mark.parametrize("mapping", [None, [], "name", 3])
def test_something_that_is_no_mapping_is_refused(mapping: Any) -> None:
    with pytest.raises(UserError, match=r"^c: expected fields with values"):
        from_mapping(Outer, mapping, "c")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(UserError, match=r"^c: field 'name' is missing$"):
        from_mapping(Outer, {}, "c")


@pytest.mark.parametrize("name", [each.name for each in dataclasses.fields(Outer)])
def test_a_record_that_must_be_complete_lacks_no_field(name: str) -> None:
    whole = to_mapping(from_mapping(Outer, FULL, "c"))
    assert from_mapping(Outer, whole, "c", complete=True) == from_mapping(Outer, FULL, "c")
    del whole[name]
    with pytest.raises(UserError, match=f"^c: field '{name}' is missing$"):
        from_mapping(Outer, whole, "c", complete=True)


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"inner": {"size": 3}}, "c: inner: field 'share' is missing"),
        ({"inners": [{"size": 3}]}, r"c: inners\[0\]: field 'share' is missing"),
    ],
)
def test_a_record_that_must_be_complete_is_so_at_all_depths(
    section: dict[str, Any], sentence: str
) -> None:
    whole = to_mapping(from_mapping(Outer, FULL, "c")) | section
    with pytest.raises(UserError, match=f"^{sentence}$"):
        from_mapping(Outer, whole, "c", complete=True)


NAMES = [each.name for each in dataclasses.fields(Outer)] + ["size", "share"]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.dates()
)
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
    | st.fixed_dictionaries({"name": st.text()}, optional=dict.fromkeys(NAMES[1:10], VALUES))
)
def test_any_value_gives_the_dataclass_or_names_the_field(mapping: Any) -> None:
    sentence = ""
    try:
        built = from_mapping(Outer, mapping, "file")
    except UserError as error:
        sentence = str(error)
    if not sentence:
        assert isinstance(built, Outer)
        assert from_mapping(Outer, to_mapping(built), "file") == built
        return
    assert sentence.startswith("file: ")
    assert "\n" not in sentence
    if isinstance(mapping, dict):
        assert "unknown field" in sentence or any(name in sentence for name in NAMES)


PLAIN_TEXT = st.text(st.characters(exclude_categories=("C",)), max_size=5)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
INNERS = st.builds(Inner, st.integers(1, 99), FINITE)


@given(
    st.builds(
        Outer,
        name=PLAIN_TEXT,
        flag=st.booleans(),
        rate=FINITE,
        place=st.none() | st.sampled_from([Path("a/b"), Path(".")]),
        inner=INNERS,
        numbers=st.lists(st.integers(), max_size=3),
        words=st.lists(PLAIN_TEXT, max_size=3).map(tuple),
        triple=st.tuples(FINITE, FINITE, FINITE),
        scores=st.dictionaries(PLAIN_TEXT, FINITE, max_size=3),
        inners=st.lists(INNERS, max_size=2),
    )
)
def test_a_dataclass_written_as_yaml_comes_back(outer: Outer) -> None:
    text = yaml.safe_dump(to_mapping(outer))
    assert from_mapping(Outer, yaml.safe_load(text), "file") == outer
