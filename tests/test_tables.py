import csv
import io

from captioner.tables import csv_text


def test_no_text_is_a_formula_and_every_other_value_stays() -> None:
    names = ['=HYPERLINK("http://a")', "@SUM(1)", "+1", "-2+3", "\tx", "a=b", "it's", "a,b\nc"]
    rows = list(
        csv.reader(io.StringIO(csv_text([{"image": name, "score": -1.5} for name in names])))
    )
    assert rows[0] == ["image", "score"]
    expected = [f"'{name}" for name in names[:5]] + names[5:]
    assert [row[0] for row in rows[1:]] == expected
    assert {row[1] for row in rows[1:]} == {"-1.5"}
