"""What the tests of the scripts share: networks of random weights, and how a script is run."""

from __future__ import annotations

import io
import itertools
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from captioner.caption import Captioner, DecoderConfig, ShowAttendTellDecoder
from captioner.caption.captioner_folder import save_model
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder

ROOT = Path(__file__).resolve().parents[2]
CHANNELS = (32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)


def mobile_net(width: float, last: int) -> dict[str, torch.Tensor]:
    """MobileNet v1's shapes up to block `last`, with weights drawn at random.

    With the thirteenth, which is the last there is, come the classes.
    """
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * (2 / shape[1] / shape[2] / shape[3]) ** 0.5

    channels = [round(size * width) for size in CHANNELS]
    tensors = {"conv1.weight": drawn(channels[0], 3, 3, 3), "conv1.bias": torch.zeros(channels[0])}
    for block, (before, after) in enumerate(itertools.pairwise(channels[: last + 1]), start=1):
        tensors[f"depthwise{block}.weight"] = drawn(before, 1, 3, 3)
        tensors[f"depthwise{block}.bias"] = torch.zeros(before)
        tensors[f"pointwise{block}.weight"] = drawn(after, before, 1, 1)
        tensors[f"pointwise{block}.bias"] = torch.zeros(after)
    if last == 13:
        tensors["logits.weight"] = drawn(1000, channels[13], 1, 1).flatten(1)
        tensors["logits.bias"] = torch.randn(1000, generator=generator)
    return tensors


def save_decoder(folder: Path) -> None:
    """A decoder of random weights that has dropout, and seven words."""
    torch.manual_seed(0)
    vocabulary = Vocabulary.build([["a", "dog", "runs", "black", "on", "grass", "man"]], 1)
    decoder = ShowAttendTellDecoder(
        DecoderConfig(embedding_size=8, hidden_size=8, attention_size=8), len(vocabulary)
    )
    encoder = VGGEncoder(VGGConfig(name="vgg11_bn", width=0.1))
    save_model(Captioner(encoder, decoder, vocabulary, Preprocessing()), folder)


def run(folder: Path, *arguments: str) -> str:
    """What a program prints that runs in a folder, in this process; it must end well.

    arguments: the file of a script, or "-m" and a module; then the program's own.
    """
    as_module = arguments[0] == "-m"
    program, *own = arguments[1:] if as_module else arguments
    printed, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(errors):
        patch.chdir(folder)
        patch.setattr(sys, "argv", [program, *own])
        if not as_module:
            patch.syspath_prepend(str(Path(program).parent))
        with pytest.raises(SystemExit) as ended:
            (runpy.run_module if as_module else runpy.run_path)(program, run_name="__main__")
    assert ended.value.code == 0, errors.getvalue()
    return printed.getvalue()
