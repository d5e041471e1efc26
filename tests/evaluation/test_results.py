from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.evaluation.scorer import read_results, write_results

text = st.text(st.characters(exclude_categories=["Cs"]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    captions=st.dictionaries(st.integers(-(10**18), 10**18), text, min_size=1, max_size=5)
    | st.dictionaries(text, text, min_size=1, max_size=5)
)
def test_what_is_written_is_read(tmp_path: Path, captions: dict[int | str, str]) -> None:
    write_results(tmp_path / "results.json", captions)
    read = read_results(tmp_path / "results.json")
    assert list(read.items()) == [(str(image), text) for image, text in captions.items()]


def test_the_format_is_cocos(tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", {42: "a dog", 7: ""})
    assert json.loads((tmp_path / "results.json").read_text()) == [
        {"image_id": 42, "caption": "a dog"},
        {"image_id": 7, "caption": ""},
    ]
    (tmp_path / "other.json").write_text('[{"image_id": 1, "caption": "a dog", "id": 12}]')
    assert read_results(tmp_path / "other.json") == {"1": "a dog"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"image_id": 1, "caption": "a"}', "is not a list of captions"),
        ('[{"image_id": 1, "caption": "a"}, 3]', "record 1 does not have"),
        ('[{"caption": "a"}]', "record 0 does not have image_id"),
        ('[{"image_id": 5}]', "record 0 does not have image_id and caption"),
        ('[{"image_id": 1.5, "caption": "a"}]', "image_id 1.5 is neither"),
        ('[{"image_id": true, "caption": "a"}]', "image_id True is neither"),
        ('[{"image_id": [1], "caption": "a"}]', "neither a whole number nor a string"),
        ('[{"image_id": 1, "caption": null}]', "caption of image 1 is not a string"),
        (
            '[{"image_id": 1, "caption": "a"}, {"image_id": "1", "caption": "b"}]',
            "record 1: image '1' already has a caption",
        ),
        ("[", "is not valid JSON"),
        ("[]", "is not a list of captions"),
    ],
)
def test_ill_formed_results_are_refused_by_name(tmp_path: Path, content, sentence) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(UserError, match=sentence) as refusal:
        read_results(path)
    assert str(path) in str(refusal.value)
