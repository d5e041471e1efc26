"""What cannot be used is refused in one sentence that names the file, the field or the tensor."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from samples import make_captioner
from torch import Tensor

import captioner
from captioner.caption.base import Standardisation
from captioner.caption.caption import Caption
from captioner.caption.folder import load_model
from captioner.caption.losses import ObjectiveConfig, SelfCriticalConfig
from captioner.caption.lstm import DecoderConfig, ShowAttendTellDecoder
from captioner.caption.transformer import TransformerDecoderConfig
from captioner.errors import UserError
from captioner.runs.read_recipe import captioning_recipe
from captioner.vision.preprocessing import Preprocessing

CAPTION = Caption("a", ("a",), -1.5, (-1.0,), torch.zeros(1, 4, 4))


def objective(selection: str, **fields: Any) -> Callable[[], object]:
    return lambda: ObjectiveConfig(**fields).check_selection(selection)


def transformer(**fields: Any) -> Callable[[], object]:
    return lambda: TransformerDecoderConfig(**{"layers": 2, "heads": 3, **fields})


def recipe(**decoder: Any) -> Callable[[], object]:
    return lambda: captioning_recipe({"data": {"format": "shapes"}, "decoder": decoder}, "config")


def model_of(**parts: Any) -> Callable[[], object]:
    return lambda: replace(make_captioner(), **parts)


def captioned(photos: Any, **options: Any) -> Callable[[], object]:
    return lambda: make_captioner().caption(photos, **options)


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (objective("hard", grounding=0.5), "objective.grounding is for soft attention"),
        (objective("hard", self_critical=SelfCriticalConfig()), "self_critical is for soft attent"),
        (lambda: Standardisation(4).fit([torch.ones(2, 3, 4)]), "standardised: all are alike"),
        (lambda: SelfCriticalConfig(samples=1), "samples 1 is not at least 2, as baseline"),
        (transformer(embedding_size=9), "embedding_size 9 is not even and a multiple of 3 heads"),
        (transformer(embedding_size=12, map_layer=2), "map_layer 2 is not one of the 2 layers"),
        (transformer(embedding_size=12, selection="hard"), "selection 'hard' is for kind lstm"),
        (recipe(kind="transfomer"), "decoder.kind 'transfomer' is not one of lstm, transformer"),
        (recipe(heads=4), "field 'decoder.heads' is for another kind of decoder"),
        (recipe(kind="transformer", heds=4), "unknown field 'decoder.heds'; did you mean 'decoder"),
        (lambda: CAPTION.overlay("a.png"), "a caption without its photo, or without words, cannot"),
        (lambda: captioner.load(precision="half"), "'half' is not one of float32, bfloat16"),
        (captioned(3), "the image is of the type int, not a path"),
        (captioned([], batch_size=0), "batch size 0 is not at least 1"),
        (captioned([], on_error="ignore"), "on_error 'ignore' is neither"),
        (captioned(torch.zeros(9, 9, 3)), "shape (9, 9, 3), not (H, W, 3), of a tensor (3, H, W)"),
        (captioned(np.zeros((9, 9, 3), int)), "array of int64 and shape (9, 9, 3), not"),
        (captioned(torch.full((3, 9, 9), torch.nan)), "float32 and shape (3, 9, 9), not"),
        (model_of(decoder=ShowAttendTellDecoder(DecoderConfig(memory_size=9), 14)), "9 is not 512"),
        (model_of(preprocessing=Preprocessing(size=15, resize="squash")), "size 15 is too small"),
    ],
)
def test_options_that_mean_nothing_are_named(use: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        use()
    assert sentence in str(caught.value)


FILES = WEIGHTS, CONFIG, _ = "model.safetensors", "config.json", "vocabulary.json"


def tensor(name: str, value: Tensor) -> Callable[[Path], None]:
    """Changes a tensor of a folder."""
    return lambda at: save_file({**load_file(at / WEIGHTS), name: value}, at / WEIGHTS)


def config(section: str, **fields: Any) -> Callable[[Path], None]:
    """Changes fields of a folder's config."""

    def change(folder: Path) -> None:
        content = json.loads((folder / CONFIG).read_text())
        (content[section] if section else content).update(fields)
        (folder / CONFIG).write_text(json.dumps(content))

    return change


@pytest.mark.parametrize(
    ("file", "change", "sentence"),
    [
        (WEIGHTS, tensor("decoder.gate.weight", torch.zeros(2, 12)), "is (2, 12), not (1, 12)"),
        (WEIGHTS, tensor("decoder.extra", torch.zeros(1)), "'decoder.extra' does not belong"),
        (WEIGHTS, tensor("ngrams", torch.ones(1, 4)), "'ngrams' does not hold 4-grams of 14 words"),
        (WEIGHTS, tensor("ngrams", torch.tensor([[4, 5, 6, 99]])), "does not hold 4-grams of 14"),
        (CONFIG, config("", format="captioner caption model 2"), "its format is 'captioner"),
        (CONFIG, config("", format=None), "a run's model is in its folder model"),
        (CONFIG, config("", confidence={"weights": {}}), "'confidence.weights.intercept' is miss"),
        (CONFIG, config("decoder", gate="matrix"), "decoder.gate 'matrix' is not one of"),
        (WEIGHTS, config("decoder", memory_size=100), "tensor 'decoder.attention.score.key_"),
        (WEIGHTS, lambda at: os.truncate(at / WEIGHTS, 2**43), "takes 8796.1 GB, and there are"),
        ("", config("decoder", hidden_size=65_536, embedding_size=65_536), "GB of memory"),
        (CONFIG, config("preprocessing", size=8), "preprocessing size 8 is too small"),
        *((file, lambda at, name=file: (at / name).write_text("null"), "") for file in FILES),
        *((file, lambda at, name=file: os.truncate(at / name, 90), "") for file in FILES),
        *((file, lambda at, name=file: (at / name).unlink(), "not exist") for file in FILES),
        ("", shutil.rmtree, "does not exist"),
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
