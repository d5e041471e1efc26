import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from samples import make_captioner, save_photo

from captioner.caption.caption import Caption, sentence
from captioner.errors import UserError
from captioner.text.tokenizer import tokenize

CAPTION = Caption("a dog", ("a", "dog"), -1.5, (-0.25, -1.0), torch.zeros(2, 4, 4))


def test_a_caption_as_text_and_as_json() -> None:
    several = replace(CAPTION, alternatives=(CAPTION, CAPTION))
    shown = repr(several)
    assert shown.startswith("Caption(text='a dog', log_probability=-1.5, score=None, confidence")
    assert shown.count("a dog") == 1
    assert str(several) == "a dog"
    assert json.loads(json.dumps(CAPTION.to_dict())) == {
        "caption": "a dog",
        "words": ["a", "dog"],
        "log_probability": -1.5,
        "word_log_probabilities": [-0.25, -1.0],
    }
    assert several.to_dict()["alternatives"] == [CAPTION.to_dict()] * 2


def test_a_caption_draws_itself(tmp_path: Path) -> None:
    model = make_captioner()
    path = save_photo(tmp_path / "a.png", size=(120, 90))
    of_path = model.caption(path, n_best=2)
    assert isinstance(of_path, Caption)
    for number, caption in enumerate((of_path, model.caption(Image.open(path), n_best=2))):
        caption.overlay(tmp_path / f"{number}.png")
        caption.gif(tmp_path / f"{number}.gif")
        caption.html(tmp_path / f"{number}.html")
        caption.alternatives[0].overlay(tmp_path / f"other{number}.png")
    for name in ("{}.png", "{}.gif", "{}.html", "other{}.png"):
        one, other = ((tmp_path / name.format(number)).read_bytes() for number in (0, 1))
        assert one == other
    assert Image.open(tmp_path / "0.gif").n_frames == len(of_path.words)
    with pytest.raises(UserError, match=r"cannot write .*a\.txt"):
        of_path.overlay(tmp_path / "a.txt")
    path.unlink()
    with pytest.raises(UserError, match=r"a\.png does not exist"):
        of_path.gif(tmp_path / "gone.gif")


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("a man 's hat", "a man's hat"),
        ("a dog does n't run", "a dog doesn't run"),
        ("they 're happy and we 've won", "they're happy and we've won"),
        ("a red dog", "a red dog"),
        ("'s hat", "'s hat"),
        ("dog 's 's", "dog's 's"),
        ("", ""),
    ],
)
def test_a_caption_reads_as_it_is_written(words: str, written: str) -> None:
    assert sentence(words.split()) == written
    assert tokenize(written) == words.split()
