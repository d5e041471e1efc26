"""Reads published checkpoints of Show, Attend and Tell by others, as networks of ours.

Two codes, and whatever people trained by them: the PyTorch tutorial of sgrvinod, and AaronCCWong's.
Both compute words from the hidden state alone. They differ in the score's activation, in the first
state, and in how photos are prepared. Their scores have a bias on each side, whose sum is ours, and
one behind v, which the softmax cancels.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captioner.backends.inert_pickle import read_checkpoint
from captioner.backends.torch_captions import TorchCaptions
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.files import read_bytes, read_json, write_bytes
from captioner.foreign_models import COPIED, PICKLES
from captioner.model_folders import CARD, CONFIG, WEIGHTS, pickled_folder
from captioner.models.caption_config import DecoderConfig
from captioner.models.score_config import ScoreConfig
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.module_weights import fill
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.vision.encoder import Encoder, torchvision_weights
from captioner.vision.encoder_config import EncoderConfig, TorchvisionConfig
from captioner.vision.encoder_families import make_encoder
from captioner.vision.preprocessing import Preprocessing
from captioner.weight_files import write_weights


class _Code(NamedTuple):
    """A published code: what differs in its decoder, the side of its photos, and its beam."""

    name: str
    decoder: dict[str, Any]
    size: int
    beam: int


_RELU = {"score": ScoreConfig(activation="relu"), "start_tanh": False}
_CODES = (_Code("sgrvinod's tutorial", _RELU, 256, 5), _Code("AaronCCWong's code", {}, 224, 3))
_KEY, _QUERY = "attention.score.key_projection", "attention.score.query_projection"
_ENERGY = "attention.score.energy"
_MODULES = {
    _KEY: ("attention.encoder_att", "attention.W"),
    _QUERY: ("attention.decoder_att", "attention.U"),
    _ENERGY: ("attention.full_att", "attention.v"),
    "embedding": ("embedding", "embedding"),
    "lstm": ("decode_step", "lstm"),
    "initial_hidden": ("init_h", "init_h"),
    "initial_cell": ("init_c", "init_c"),
    "gate": ("f_beta", "f_beta"),
    "output": ("fc", "deep_output"),
}
"""Modules of our decoder, by their names in each of `_CODES`."""

TORCHVISION = {"vgg19": "vgg19", "resnet152": "torchvision/resnet152"}
"""Encoders of AaronCCWong's code, with torchvision's first weights, by their names here.

Its DenseNet-161 is missing: its size there, 1,920, is not 2,208, so that no checkpoint has it.
"""

_LAYERS = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
"""Of torchvision's ResNets, by their place in the tutorial's `Sequential`."""


def read_published(
    path: Path, word_map: Path, encoder: str | None = None
) -> tuple[TorchCaptions, SearchOptions, str]:
    """Read a checkpoint and its word map: the networks, and the search and name of its code.

    encoder: for a checkpoint without one: a name in `TORCHVISION`, or a file with the tutorial's.
    """
    tensors = read_checkpoint(path)
    found = [_beside(tensors, f"{name}.weight") for name in _MODULES[_ENERGY]]
    if not any(found):
        raise UserError(f"checkpoint {path} has no decoder of the tutorial's or AaronCCWong's code")
    place = 0 if found[0] else 1
    code = _CODES[place]
    ours = {names[place]: module for module, names in _MODULES.items()}
    state = {}
    for name, tensor in found[place].items():
        module, _, kind = name.rpartition(".")
        state[f"{ours.get(module, module)}.{kind}".removeprefix(".")] = tensor
    try:
        state[f"{_KEY}.bias"] = state[f"{_KEY}.bias"] + state.pop(f"{_QUERY}.bias")
        state.pop(f"{_ENERGY}.bias", None)
        config = _decoder_config(state, code)
        vocabulary, rows = _vocabulary(word_map, len(state["embedding.weight"]))
        for name in ShowAttendTellDecoder.word_tensors:
            state[name] = state[name][rows]
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        problem = f"is damaged, or of another architecture than {code.name} ({error})"
        raise UserError(f"checkpoint {path} {problem}") from None
    decoder = ShowAttendTellDecoder(config, len(vocabulary))
    fill(decoder, state, f"checkpoint {path} does not fit {code.name}")
    preprocessing = Preprocessing(size=code.size, resize="squash", interpolation="bilinear")
    networks = TorchCaptions(_encoder(path, tensors, encoder), decoder, vocabulary, preprocessing)
    return networks, SearchOptions(beam=code.beam, maximum_length=50), code.name


def convert_pickles(name: str, folder: Path) -> None:
    """Write a captioner of transformers with safetensors, made of its pickled weights.

    name: address or path of a model with `pytorch_model.bin`, or with several such files.
    """
    source = pickled_folder(name).files
    tensors: dict[str, Tensor] = {}
    for path in sorted(source.glob(*PICKLES)):
        tensors |= read_checkpoint(path)
    if not tensors:
        raise UserError(f"{name} has no weights in {' or '.join(PICKLES)} to convert")
    contiguous = {each: tensor.contiguous() for each, tensor in tensors.items()}
    write_weights(folder / WEIGHTS, contiguous, {"format": "pt"})
    copied = [each for each in (*COPIED, CARD) if (source / each).is_file()]
    for each in (*copied, CONFIG):  # A folder without it is no model.
        write_bytes(folder / each, read_bytes(source / each))


def _beside(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors that have the prefix of this one, without it; none if it is not there."""
    prefixes = [each.removesuffix(name) for each in tensors if f".{each}".endswith(f".{name}")]
    start = prefixes[0] if prefixes else "\0"
    return {each.removeprefix(start): tensors[each] for each in tensors if each.startswith(start)}


def _decoder_config(state: Mapping[str, Tensor], code: _Code) -> DecoderConfig:
    """The config of a decoder with these tensors."""
    hidden, memory = state["initial_hidden.weight"].shape
    return DecoderConfig(
        embedding_size=state["embedding.weight"].shape[1],
        hidden_size=hidden,
        memory_size=memory,
        attention_size=state[f"{_ENERGY}.weight"].shape[1],
        gate="vector" if "gate.weight" in state else "none",
        deep_output=False,
        **code.decoder,
    )


def _vocabulary(path: Path, count: int) -> tuple[Vocabulary, list[int]]:
    """The words of a word map, and for each its row in the tensors of words."""
    read = read_json(path, "word map")
    numbers = read if isinstance(read, dict) else {}
    special = [name if name in numbers else name.replace("end", "eos") for name in SPECIAL_WORDS]
    if sorted(map(str, numbers.values())) != sorted(map(str, range(count))):
        needs = f"words with the numbers 0 to {count - 1:,}, each once, as the checkpoint has them"
        raise UserError(f"word map {path} does not fit: it should have {needs}")
    if missing := {*special} - numbers.keys():
        raise UserError(f"word map {path} has no {', '.join(sorted(missing))}")
    ordinary = sorted(numbers.keys() - {*special}, key=lambda word: int(numbers[word]))
    rows = [int(numbers[word]) for word in (*special, *ordinary)]
    return Vocabulary(ordinary, f"word map {path}"), rows


def _encoder(path: Path, tensors: Mapping[str, Tensor], given: str | None) -> Encoder:
    """The encoder of a checkpoint, or the one given: of torchvision, or in a file.

    The tutorial's is a ResNet-101 without its last two layers, whose map is pooled to 14x14.
    """
    if given in TORCHVISION:
        encoder = make_encoder(EncoderConfig.of_kind({"name": TORCHVISION[given]}))
        state = torchvision_weights(given, "IMAGENET1K_V1")
        fill(encoder, encoder.own_tensors(state), f"torchvision's weights do not fit {given}")
        return encoder
    if given is not None:
        path = Path(given)
        if not path.is_file():
            known = ", ".join(TORCHVISION)
            raise UserError(f"encoder {given!r} is neither a file nor one of {known}")
        tensors = read_checkpoint(path)
    encoder = make_encoder(TorchvisionConfig(name="torchvision/resnet101", map_size=14))
    # Files from before torch 0.4.1 do not count batches.
    state = {name: torch.tensor(0) for name in encoder.state_dict() if name.endswith("_tracked")}
    theirs = _beside(tensors, "resnet.0.weight")
    if not theirs:
        raise UserError(f"checkpoint {path} has no encoder: give --encoder a name or its file")
    for name, tensor in theirs.items():
        layer, _, rest = name.removeprefix("resnet.").partition(".")
        state[f"network.{_LAYERS.get(layer, layer)}.{rest}"] = tensor
    fill(encoder, state, f"the encoder of checkpoint {path} is no ResNet-101")
    return encoder
