"""Word vectors from text files: what is read, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from captioner.caption.base import read_word_vectors
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "dog", "runs", "café"])  # 4 to 7


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "vectors.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("header", ["", "\ufeff", "4 3\n", "\ufeff4 3\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n", " \n"])
def test_the_vectors_of_known_words_are_read(tmp_path: Path, header: str, end: str) -> None:
    lines = ["runs 1 2e0 -3.5", "cat 4 5 6", ". . . 7 8 9", "café .5 0 1", "runs 3 3 3"]
    indices, vectors = read_word_vectors(
        write(tmp_path, header + "".join(line + end for line in lines)), VOCABULARY, 3
    )
    assert indices.tolist() == [6, 7]
    assert vectors.tolist() == [[1.0, 2.0, -3.5], [0.5, 0.0, 1.0]]


def test_words_that_are_not_text_are_passed_over(tmp_path: Path) -> None:
    content = b"\xff\xfe 1 2\nline\xc2\x85end 1 2\n<end> 8 8\ndog 3 4\n"
    indices, _ = read_word_vectors(write(tmp_path, content), VOCABULARY, 2)
    assert indices.tolist() == [5]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("dog 1 2\n", r"vectors\.txt has none of the 8 words with 3 numbers, which decoder\.emb"),
        ("dog 0.5 2 3 4\n", "none of the 8 words"),
        ("dog\t1\t2\t3\n", "none of the 8 words"),
        ("2 3\n", "none of the 8 words"),
        ("", "none of the 8 words"),
        ("cat 1 2 3\n\ndog 1 two 3\n", "line 3: .*'two'"),
        ("dog 1 nan 3\n", "line 1 has a number that is not finite"),
        ("dog 1 1e39 3\n", "line 1 has a number that is not finite"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        read_word_vectors(write(tmp_path, content), VOCABULARY, 3)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.txt cannot be read \(No such file"):
        read_word_vectors(tmp_path / "absent.txt", VOCABULARY, 3)


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["a", "dog", "runs", "café", "cat", "two words", "\x85"]),
        st.lists(NUMBERS, min_size=4, max_size=4),
        min_size=1,
    )
)
def test_what_is_written_is_read(tmp_path: Path, written: dict[str, list[float]]) -> None:
    lines = [" ".join([word, *map(repr, numbers)]) + "\n" for word, numbers in written.items()]
    path = write(tmp_path, "".join(lines))
    known = {word: numbers for word, numbers in written.items() if word in VOCABULARY}
    if not known:
        with pytest.raises(UserError, match="has none of"):
            read_word_vectors(path, VOCABULARY, 4)
        return
    indices, vectors = read_word_vectors(path, VOCABULARY, 4)
    assert indices.tolist() == VOCABULARY.encode(known)
    assert vectors.tolist() == list(known.values())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_file_is_read_or_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    try:
        indices, vectors = read_word_vectors(path, VOCABULARY, 1)
    except UserError:
        with pytest.raises(UserError, match=r"vectors\.txt"):
            read_word_vectors(path, VOCABULARY, 1)
        return
    assert vectors.shape == (len(indices), 1)
    assert math.isfinite(float(vectors.sum()))
