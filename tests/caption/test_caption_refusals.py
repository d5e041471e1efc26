"""What cannot be used is refused in one sentence that names the file, the field or the tensor."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from samples import change_config, make_captioner, photo, renew_digests
from torch import Tensor

import captioner
from captioner.caption.caption import Caption
from captioner.caption.folder import load_model
from captioner.errors import UserError
from captioner.models.caption_config import DecoderConfig, TransformerDecoderConfig
from captioner.models.caption_decoder import Standardisation
from captioner.models.caption_losses import SelfCriticalConfig
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.module_weights import write_tensors
from captioner.runs.read_recipe import captioning_recipe
from captioner.vision.preprocessing import Preprocessing

MODEL = make_captioner()
CAPTION = Caption("a", ("a",), -1.5, (-1.0,), torch.zeros(1, 4, 4))
TRANSFORMER = partial(TransformerDecoderConfig, layers=2, heads=3, embedding_size=12)
NARROW = ShowAttendTellDecoder(DecoderConfig(memory_size=9), 14)
SMALL = Preprocessing(size=15, resize="squash")


@pytest.mark.parametrize(
    ("use", "options", "sentence"),
    [
        (TRANSFORMER, {"embedding_size": 9}, "embedding_size 9 is not even and a multiple of 3"),
        (TRANSFORMER, {"map_layer": 2}, "map_layer 2 is not one of the 2 layers"),
        (TRANSFORMER, {"selection": "hard"}, "selection 'hard' is for kind lstm"),
        (SelfCriticalConfig, {"samples": 1}, "samples 1 is not at least 2, as baseline"),
        (captioner.load, {"precision": "half"}, "'half' is not one of float32, bfloat16"),
        (CAPTION.overlay, {"path": "a.png"}, "a caption without its photo, or without words, can"),
        (
            MODEL.caption,
            {"photos": photo(), "search": {"beam": 2}},
            "search is of the type dict, not",
        ),
        (
            MODEL.explain,
            {"photos": photo(), "captions": 5},
            "captions: number 1 is of the type int",
        ),
        (
            MODEL.explain,
            {"photos": photo(), "captions": ["a dog", None]},
            "captions: number 2 is of ",
        ),
        (MODEL.caption, {"photos": 3}, "the image is of the type int, not a path"),
        (MODEL.caption, {"photos": [], "batch_size": 0}, "batch size 0 is not at least 1"),
        (MODEL.caption, {"photos": [], "on_error": "ignore"}, "on_error 'ignore' is neither"),
        (MODEL.caption, {"photos": photo(), "cautious": True}, "captioner calibrate"),
        (MODEL.caption, {"photos": torch.zeros(9, 9, 3)}, "not (H, W, 3), for a tensor (3, H, W)"),
        (MODEL.caption, {"photos": np.zeros((9, 9, 3), int)}, "array of int64 and shape (9, 9, 3)"),
        (MODEL.caption, {"photos": torch.full((3, 9, 9), torch.nan)}, "or floats in 0 to 1"),
        (partial(replace, MODEL.backend), {"decoder": NARROW}, "9 is not 512"),
        (partial(replace, MODEL.backend), {"preprocessing": SMALL}, "size 15 is too small"),
        (Standardisation(4).fit, {"photos": [torch.ones(2, 3, 4)]}, "standardised: all are alike"),
    ],
)
def test_options_that_mean_nothing_are_named(
    use: Callable[..., object], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as caught:
        use(**options)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "transfomer"}, "decoder.kind 'transfomer' is not one of lstm, transformer"),
        ({"heads": 4}, "field 'decoder.heads' is for another kind of decoder"),
        ({"kind": "transformer", "heds": 4}, "unknown field 'decoder.heds'; did you mean 'decoder"),
        ({"score": {"kind": "cosin"}}, "decoder.score.kind: 'cosin' is not one of additive, "),
        ({"score": {"kind": "additive", "activation": "elu"}}, "decoder.score.activation 'elu' is"),
    ],
)
def test_fields_of_no_decoder_are_named(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        captioning_recipe({"data": {"format": "shapes"}, "decoder": fields}, "config")


FILES = WEIGHTS, CONFIG, _ = "model.safetensors", "config.json", "vocabulary.json"


def tensor(name: str, value: Tensor) -> Callable[[Path], None]:
    """Changes a tensor of a folder."""

    def change(folder: Path) -> None:
        write_tensors(folder / WEIGHTS, {**load_file(folder / WEIGHTS), name: value})
        renew_digests(folder, WEIGHTS)

    return change


def config(section: str, **fields: Any) -> Callable[[Path], None]:
    """Changes fields of a folder's config."""

    def change(content: Any) -> None:
        (content[section] if section else content).update(fields)

    return lambda folder: change_config(folder, change)


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Puts something else in the place of a file of a folder."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("file", "change", "sentence"),
    [
        (WEIGHTS, tensor("decoder.gate.weight", torch.zeros(2, 12)), "is (2, 12), not (1, 12)"),
        (WEIGHTS, tensor("decoder.extra", torch.zeros(1)), "'decoder.extra' does not belong"),
        (CONFIG, config("", format="captioner caption model 2"), "no format 'captioner"),
        (CONFIG, config("", format=None), "no format 'captioner caption model 1'"),
        (CONFIG, config("", confidence={"weights": {}}), "'confidence.weights.intercept' is miss"),
        (CONFIG, config("decoder", gate="matrix"), "decoder.gate 'matrix' is not one of"),
        (WEIGHTS, config("decoder", memory_size=100), "tensor 'decoder.attention.score.key_"),
        (WEIGHTS, lambda at: os.truncate(at / WEIGHTS, 2**43), "takes 8796.1 GB, and there are"),
        ("", config("decoder", hidden_size=65_536, embedding_size=65_536), "GB of memory"),
        (CONFIG, config("preprocessing", size=8), "preprocessing size 8 is too small"),
        *((file, lambda at, name=file: (at / name).write_text("null"), "") for file in FILES),
        *((file, lambda at, name=file: os.truncate(at / name, 90), "") for file in FILES),
        *((file, lambda at, name=file: (at / name).unlink(), "not exist") for file in FILES),
        *((file, instead(file, make), "") for file in FILES for make in (os.mkfifo, endless)),
        *((file, instead(file, Path.mkdir), "") for file in FILES),
        ("", shutil.rmtree, "neither a folder nor"),
    ],
)
def test_a_damaged_folder_is_refused_by_its_file(
    tiny_model: Path, file: str, change: Callable[[Path], None], sentence: str
) -> None:
    change(tiny_model)
    with pytest.raises(UserError) as error:
        load_model(tiny_model)
    assert str(tiny_model / file) in str(error.value)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
