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


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


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
