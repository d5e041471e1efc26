"""Tables as text and for LaTeX."""

import re

from hypothesis import given
from hypothesis import strategies as some

from captioner.errors import on_a_line
from captioner.tables import latex_table, latex_text

NAMED = {
    "backslash": "\\",
    "asciitilde": "~",
    "asciicircum": "^",
    "less": "<",
    "greater": ">",
    "bar": "|",
}
UNIT = re.compile(
    rf"\\(?P<sign>[#$%&_{{}}])|\\text(?P<name>{'|'.join(NAMED)}){{}}|{{(?P<option>[\[*])}}"
    r"|(?P<plain>[^#$%&_{}\\~^<>|\[*])"
)
texts = some.text(some.sampled_from("a -#$%&_{}\\~^<>|[*]\n\t\x7fé\udc80\"'") | some.characters())


@given(texts)
def test_latex_finds_nothing_in_a_text_but_the_text(text: str) -> None:
    escaped = latex_text(text)
    assert re.fullmatch(rf"({UNIT.pattern.replace('?P<', '?P<_')})*", escaped)
    found = [unit.groupdict() for unit in UNIT.finditer(escaped)]
    letters = [
        NAMED[each["name"]] if each["name"] else max(filter(None, each.values())) for each in found
    ]
    assert "".join(letters) == on_a_line(text)


@given(
    some.lists(some.lists(texts | some.floats() | some.none(), min_size=3, max_size=3), min_size=1)
)
def test_a_latex_table_has_a_line_a_record_and_a_cell_a_value(rows: list[list[object]]) -> None:
    records = [dict(zip(("a_b", "c", "d"), row, strict=True)) for row in rows]
    lines = latex_table(records, {"d": rows[0][2]}).splitlines()
    body = [line for line in lines if line.endswith(r" \\")]
    assert len(body) == len(rows) + 1 == len(lines) - 6
    for line in body:
        assert len(re.findall(r"(?<!\\)&", line)) == 2
        assert line.count("{") - line.count(r"\{") == line.count("}") - line.count(r"\}")
