"""One translation: its alignment by words, as JSON and drawn."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from captioner.errors import UserError
from captioner.render.alignment import Alignment, save_heat_map
from captioner.text.vocabulary import Word
from captioner.translate.translation import Translation

# "wants" is read in two pieces and "möchte" written in two.
READ = (Word("He", 1), Word("wants", 2), Word("<end>", 1))
WRITTEN = (Word("Er", 1), Word("möchte", 2))
WEIGHTS = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.5, 0.0]])
BY_WORD = [[0.7, 0.2, 0.1], [0.05, 0.75, 0.2]]


def translation(weights: torch.Tensor, words: tuple[Word, ...] = WRITTEN) -> Translation:
    tokens = ("▁Er", "▁möch", "te")[: sum(word.size for word in words)]
    read = ("▁He", "▁want", "s", "<end>")
    return Translation("Er möchte", read, tokens, -1.0, (), weights, READ, words)


def test_pieces_read_are_added_and_pieces_written_averaged() -> None:
    source, target, weights = translation(WEIGHTS).by_word()
    assert (source, target) == (("He", "wants", "<end>"), ("Er", "möchte"))
    torch.testing.assert_close(weights, torch.tensor(BY_WORD))
    plain = translation(WEIGHTS).to_dict()
    assert plain["word_alignment"] == BY_WORD
    assert plain["source_words"] == ["He", "wants", "<end>"]
    assert len(plain["alignment"]) == len(plain["tokens"]) == 3
    source, target, weights = translation(WEIGHTS).by_token()
    assert (source[1], target[2]) == ("▁want", "te")
    assert torch.equal(weights, WEIGHTS)
    assert translation(WEIGHTS[:0], ()).by_word().weights.shape == (0, 3)
    assert translation(WEIGHTS[:, :0]).by_word().weights.shape == (2, 0)


def test_a_translation_draws_its_alignment(tmp_path: Path) -> None:
    translation(WEIGHTS).heat_map(tmp_path / "a.png")
    save_heat_map(
        tmp_path / "b.png", Alignment(("He", "wants", "<end>"), ("Er", "möchte"), BY_WORD)
    )
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(UserError, match=r"c\.png: the translation is empty"):
        translation(WEIGHTS[:0], ()).heat_map(tmp_path / "c.png")
    with pytest.raises(UserError, match=r"c\.png: a model without attention has no alignment"):
        translation(WEIGHTS[:, :0]).heat_map(tmp_path / "c.png")


def test_a_translation_is_shown_in_one_line_and_printed_as_text() -> None:
    one = translation(WEIGHTS)
    several = replace(one, alternatives=(one, one))
    shown = "Translation(text='Er möchte', log_probability=-1.0, score=0.0, truncated=0, cut=False)"
    assert repr(several) == shown
    assert str(several) == "Er möchte"
