"""What cannot be used is refused in one sentence that names the file, the field or the tensor."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from folder_samples import config_of, refused
from gradient_samples import small_decoder
from safetensors.torch import load_file, save_file
from torch import Tensor

import captioner
from captioner.caption.base import Standardisation, read_word_vectors
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.losses import CaptioningLoss, ObjectiveConfig, SelfCriticalConfig
from captioner.caption.lstm import ShowAttendTellDecoder
from captioner.caption.reinforce import HardAttentionLoss
from captioner.caption.transformer import TransformerDecoderConfig
from captioner.errors import UserError
from captioner.runs.read_recipe import captioning_recipe
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing

CAPTION = Caption("a", ("a",), -1.5, (-1.0,), torch.zeros(1, 4, 4))


def objective(selection: str, **fields: Any) -> Callable[[], object]:
    return lambda: ObjectiveConfig(**fields).check_selection(selection)


def transformer(**fields: Any) -> Callable[[], object]:
    return lambda: TransformerDecoderConfig(**{"layers": 2, "heads": 3, **fields})


def recipe(**decoder: Any) -> Callable[[], object]:
    return lambda: captioning_recipe({"data": {"format": "shapes"}, "decoder": decoder}, "config")


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (objective("hard", doubly_stochastic=0.5), "doubly_stochastic is for soft attention"),
        (objective("soft", doubly_stochastic_target="one"), "target' was removed: leave it out"),
        (objective("hard", grounding=0.1), "objective.grounding is for soft attention"),
        (
            objective("hard", self_critical=SelfCriticalConfig()),
            "self_critical is for soft atten",
        ),
        (objective("soft", reward_weight=1.0), "reward_weight is for hard attention, and decoder."),
        (
            lambda: ObjectiveConfig(grounding=0.1, self_critical=SelfCriticalConfig()),
            "grounding has no effect: self_critical.cross_entropy_weight is 0",
        ),
        (lambda: SelfCriticalConfig(samples=1), "samples 1 is not at least 2, as baseline"),
        (lambda: Standardisation(4).fit([torch.ones(2, 3, 4)]), "cannot be standardised: all are"),
        (transformer(embedding_size=10), "embedding_size 10 is not even and a multiple of 3 heads"),
        (transformer(embedding_size=9), "embedding_size 9 is not even and a multiple of 3 heads"),
        (transformer(embedding_size=12, map_layer=2), "map_layer 2 is not one of the 2 layers"),
        (transformer(embedding_size=12, selection="hard"), "selection 'hard' is for kind lstm"),
        (recipe(kind="transfomer"), "decoder.kind 'transfomer' is not one of lstm, transformer"),
        (recipe(kind="transformer", gate="none"), "decoder.gate is for kind lstm, and kind is tra"),
        (recipe(heads=4), "decoder.heads is for kind transformer, and kind is lstm"),
        (recipe(kind="transformer", heds=4), "unknown field 'decoder.heds'; did you mean 'decoder"),
        (lambda: CAPTION.overlay("a.png"), "a caption without its photo cannot be drawn"),
        (
            lambda: replace(CAPTION, words=(), photo="a.png", region=(0, 0, 8, 8)).html("a.html"),
            "a caption without words cannot be drawn",
        ),
        (lambda: captioner.load(precision="half"), "'half' is not one of float32, bfloat16"),
    ],
)
def test_options_that_mean_nothing_are_named(use: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        use()
    assert sentence in str(caught.value)


def test_a_loss_of_the_other_attention_is_a_programmers_mistake() -> None:
    soft, hard = small_decoder(), small_decoder(selection="hard")
    for kind, decoder in ((CaptioningLoss, hard), (HardAttentionLoss, soft)):
        with pytest.raises(ValueError, match=r"this loss trains (soft|hard) attention"):
            kind(decoder, ObjectiveConfig())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"memory_size": 256}, "decoder memory_size 256 is not 512"),
        ({"vocabulary": Vocabulary(["dog"])}, "made for 14 words, but the vocabulary has 5"),
        ({"preprocessing": Preprocessing(size=15, resize="squash")}, "size 15 is too small"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    tiny_captioner: Captioner, change: dict[str, Any], sentence: str
) -> None:
    if "memory_size" in change:
        config = tiny_captioner.decoder.config.replace(**change)
        change = {"decoder": ShowAttendTellDecoder(config, 14)}
    with pytest.raises(UserError, match=sentence):
        replace(tiny_captioner, **change)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (numpy.zeros((3, 9, 9), numpy.uint8), "shape (3, 9, 9), not (H, W, 3)"),
        (torch.zeros(9, 9, 3), "shape (9, 9, 3), not (H, W, 3), of a tensor (3, H, W), of uint8"),
        (numpy.zeros((0, 9, 3), numpy.uint8), "shape (0, 9, 3), not"),
        (numpy.zeros((9, 9, 3), numpy.int64), "array of int64 and shape (9, 9, 3), not"),
        (torch.full((3, 9, 9), torch.nan), "float32 and shape (3, 9, 9), not"),
        (3, "the image is of the type int, not a path"),
    ],
)
def test_what_is_no_photo_is_refused(tiny_captioner: Captioner, given: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        tiny_captioner.caption(given)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("dog 1 2\n", "vectors.txt has none of the 5 words with 3 numbers, which decoder.emb"),
        ("", "none of the 5 words"),
        ("cat 1 2 3\n\ndog 1 two 3\n", "line 3: "),
        ("dog 1 1e39 3\n", "vectors.txt has a number that is not finite"),
        (None, "vectors.txt: No such file"),
    ],
)
def test_word_vectors_that_cannot_be_used_are_refused(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "vectors.txt").write_text(content)
    with pytest.raises(UserError, match=re.escape(sentence)):
        read_word_vectors(tmp_path / "vectors.txt", Vocabulary(["dog"]), 3)


# Model folders.


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "vocabulary.json"])
def test_a_missing_file_or_folder_is_named(tiny_model: Path, file: str) -> None:
    (tiny_model / file).unlink()
    assert "not exist" in refused(tiny_model, file)
    (tiny_model / file).mkdir()
    refused(tiny_model, file)
    shutil.rmtree(tiny_model)
    assert refused(tiny_model, "") == f"model folder {tiny_model} does not exist"


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "vocabulary.json"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"\xff\xfe" + content,
        lambda content: b"null",
        lambda content: b'{"words": 3, "format": 3}',
    ],
)
def test_a_damaged_file_is_named(
    tiny_model: Path, file: str, damage: Callable[[bytes], bytes]
) -> None:
    path = tiny_model / file
    path.write_bytes(damage(path.read_bytes()))
    refused(tiny_model, file)


@pytest.mark.parametrize(
    ("section", "change", "sentence"),
    [
        (
            None,
            {"format": "captioner caption model 2"},
            "its format is 'captioner",
        ),
        (None, {"format": None}, "a run's model is in its folder model"),
        (None, {"extra": 1}, "unknown field 'extra'"),
        (None, {"confidence": {"weights": {}}}, "field 'confidence.weights.intercept' is missing"),
        (
            None,
            {"confidence": {"familiarity": {}, "weights": 3}},
            "weights should be a valid dictionary",
        ),
        ("encoder", {"depth": 3}, "unknown field 'encoder.depth'"),
        ("decoder", {"gate": "matrix"}, "decoder.gate 'matrix' is not one of"),
        ("decoder", {"memory_size": 100}, "tensor 'decoder.attention.score.key_projection.weight"),
        ("preprocessing", {"size": 8}, "preprocessing size 8 is too small"),
    ],
)
def test_a_wrong_config_is_named(
    tiny_model: Path, section: str | None, change: dict[str, Any], sentence: str
) -> None:
    with config_of(tiny_model) as config:
        fields = config if section is None else config[section]
        fields |= change
    file = "model.safetensors" if sentence.startswith("tensor") else "config.json"
    assert re.search(sentence, refused(tiny_model, file))


GATE = "decoder.gate.weight"


@pytest.mark.parametrize(
    ("name", "tensor", "problem"),
    [
        (GATE, None, "is missing"),
        (GATE, torch.zeros(2, 12), "is (2, 12), not (1, 12)"),
        (GATE, torch.zeros(1, 12, dtype=torch.int8), "is of type torch.int8, not torch.float32"),
        ("decoder.extra", torch.zeros(1), "does not belong"),
        ("ngrams", torch.tensor([[4.0, 5.0, 6.0, 7.0]]), "does not hold 4-grams"),
        ("ngrams", torch.tensor([[4, 5, 6, 99]]), "has words beyond the vocabulary"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tiny_model: Path, name: str, tensor: Tensor | None, problem: str
) -> None:
    path = tiny_model / "model.safetensors"
    tensors = {**load_file(path), name: tensor}
    save_file({key: each for key, each in tensors.items() if each is not None}, path)
    assert f"tensor '{name}' {problem}" in refused(tiny_model, "model.safetensors")
