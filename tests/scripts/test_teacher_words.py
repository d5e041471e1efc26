from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from scripts_samples import ROOT, save_decoder
from torch.nn import functional

from captioner.errors import UserError

CAPTIONS = {"0.jpg": ["a dog runs", "a black dog on grass"], "1.jpg": ["a man", "a man runs"]}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
    import teacher_words

    return teacher_words


@pytest.fixture
def data(tmp_path: Path) -> Path:
    lines = [
        f"{name}#{number}\t{caption}\n"
        for name, captions in CAPTIONS.items()
        for number, caption in enumerate(captions)
    ]
    (tmp_path / "captions.txt").write_text("".join(lines))
    save_decoder(tmp_path / "model")
    return tmp_path


def test_the_same_map_means_the_same_and_another_map_something_else(
    script: ModuleType, data: Path
) -> None:
    words = script.TeacherWords(data / "model", data / "captions.txt", ["1.jpg", "0.jpg"])
    maps = torch.rand(2, 512, 3, 3)
    read = words.read(maps, torch.tensor([0, 1]), torch.Generator().manual_seed(0))
    # Two captions of each photo, in an order drawn: 3, 4 and 4, 6 steps with the end.
    assert read.words.shape == (2, 2, 6)
    assert sorted(read.mask[0].sum(dim=1).tolist()) == [3, 4]
    assert sorted(read.mask[1].sum(dim=1).tolist()) == [4, 6]
    assert float(words.divergence(maps, read)) == pytest.approx(0, abs=1e-6)

    other = torch.rand(2, 512, 3, 3, requires_grad=True)
    apart = words.divergence(other, read)
    with torch.no_grad():
        said = words.decoder(words.decoder.remember(other.flatten(2).mT), read.words).logits
    wanted = functional.kl_div(
        said.log_softmax(-1)[read.mask], read.said[read.mask], reduction="none", log_target=True
    ).sum(-1)
    torch.testing.assert_close(apart, wanted.mean())
    (slope,) = torch.autograd.grad(apart, other)
    assert (slope != 0).any(dim=(1, 2, 3)).all()
    assert not any(weight.requires_grad for weight in words.decoder.parameters())
    step = other.detach() - 0.1 / float(slope.norm()) * slope
    assert words.divergence(step, read).item() < apart.item()


def test_what_cannot_be_read_is_refused(script: ModuleType, data: Path) -> None:
    files = data / "model", data / "captions.txt"
    with pytest.raises(UserError, match=r"captions\.txt has fewer than 3 captions of 1\.jpg"):
        script.TeacherWords(*files, ["1.jpg"], captions_read=3)
    with pytest.raises(UserError, match=r"captions\.txt has fewer than 2 captions of 7\.jpg"):
        script.TeacherWords(*files, ["7.jpg"])
