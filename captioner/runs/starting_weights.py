"""What a run takes from a trained model: sections of its config, vocabulary, initial weights."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from captioner.caption import load_model
from captioner.caption.caption_decoder import CaptionDecoder
from captioner.caption.captioner_folder import FORMAT, read_config
from captioner.errors import UserError
from captioner.model_folders import is_of_format, model_folder
from captioner.schema import to_mapping
from captioner.text.vocabulary import Vocabulary
from captioner.weight_files import fill

WORDS = "vocabulary.json"


@dataclass(frozen=True)
class Start:
    """Initial weights and vocabulary.

    vocabulary: begins the run's, since the weights are by word index. decoder: weights; empty for
    a resumed run, whose checkpoint has them. encoder: likewise; empty also if the earlier run did
    not train it.
    """

    source: Path
    vocabulary: Vocabulary
    decoder: dict[str, Tensor]
    encoder: dict[str, Tensor]

    def put_into(self, decoder: CaptionDecoder, encoder: nn.Module, trained: bool) -> None:
        """Fill the decoder and, if it is trained, the encoder.

        Words that the decoder has beyond `vocabulary` begin as copies of `<unk>`, which they were,
        and share its probability with it.

        Raises `UserError` for the first tensor that does not fit, and if an encoder that is not
        trained differs from the one that the decoder was trained on.
        """
        if self.decoder:
            tensors = self._with_new_words(decoder)
            fill(decoder, tensors, f"start_from {self.source} does not fit this decoder")
        if trained and self.encoder:
            fill(encoder, self.encoder, f"start_from {self.source} does not fit this encoder")
        elif self.encoder:
            own = encoder.state_dict()
            for name in sorted(self.encoder.keys() | own.keys()):
                if (
                    name not in self.encoder
                    or name not in own
                    or not _equal_up_to_rounding(self.encoder[name], own[name])
                ):
                    raise UserError(
                        f"start_from {self.source} was trained on another encoder than this "
                        f"recipe's: tensor {name!r} differs"
                    )

    def _with_new_words(self, decoder: CaptionDecoder) -> dict[str, Tensor]:
        """The decoder's weights with a row for each of its words."""
        tensors = dict(self.decoder)
        new = decoder.output.out_features - len(self.vocabulary)
        if new <= 0 or not set(decoder.word_tensors) <= tensors.keys():
            return tensors
        rows = torch.tensor([*range(len(self.vocabulary)), *[Vocabulary.unknown] * new])  # (V,)
        for name in decoder.word_tensors:
            tensors[name] = tensors[name][rows]
        tensors["output.bias"][rows == Vocabulary.unknown] -= math.log(1 + new)
        return tensors


def with_model_sections(mapping: Any) -> Any:
    """Fill the encoder, decoder, preprocessing and search of a config, given as plain values.

    Fields left out come from the model of `start_from`. Those of encoder and preprocessing come
    from the model that `encoder.weights` names. Without a model, or with a file, nothing changes,
    nor does an encoder of another name or a decoder of another kind.
    Raises `UserError` if the model's config is invalid.
    """
    if not isinstance(mapping, dict):
        return mapping
    encoder = mapping.get("encoder")
    weights = encoder.get("weights") if isinstance(encoder, dict) else None
    names = ["encoder", "preprocessing"]
    if (eyes := _folder_of(weights)) is not None and is_of_format(eyes, FORMAT):
        mapping = _with_sections(mapping, eyes, names)
    if (start := _folder_of(mapping.get("start_from"))) is not None:
        mapping = _with_sections(mapping, start, [*names, "decoder", "search"])
    return mapping


def _folder_of(model: Any) -> Path | None:
    """The folder of a model; None for a file, or for something missing, which its reader names."""
    with contextlib.suppress(UserError):
        return model_folder(model) if isinstance(model, str) else None
    return None


def _with_sections(mapping: dict[str, Any], folder: Path, names: list[str]) -> dict[str, Any]:
    model = to_mapping(read_config(folder))
    sections = {name: model[name] for name in names}
    sections["encoder"]["weights"] = str(folder)
    for section, field in (("encoder", "name"), ("decoder", "kind")):
        own = mapping.get(section)
        if isinstance(own, dict) and own.get(field) not in (None, model[section][field]):
            sections.pop(section, None)
    given = {name: mapping.get(name, {}) for name in sections}
    filled = {n: {**sections[n], **own} for n, own in given.items() if isinstance(own, dict)}
    return {**mapping, **filled}


def read_start(path: Path) -> Start:
    """Read a packaged model, a folder of a model or a run, or a checkpoint beside its vocabulary.

    Raises `UserError` for anything else.
    """
    if not os.path.isfile(path):
        captioner = load_model(model_folder(path))
        return Start(
            path,
            captioner.vocabulary,
            dict(captioner.decoder.state_dict()),
            dict(captioner.encoder.state_dict()),
        )
    try:
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.startswith("model.")]  # noqa: SIM118
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise UserError(f"start_from {path} cannot be read ({error})") from None
    decoder, encoder = (
        {n.removeprefix(part): t for n, t in tensors.items() if n.startswith(part)}
        for part in ("model.decoder.", "model.encoder.")
    )
    if not decoder:
        raise UserError(f"start_from {path} is neither a model folder nor a checkpoint of one")
    return Start(path, Vocabulary.load(path.parent / WORDS), decoder, encoder)


def _equal_up_to_rounding(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors differ at most by a saved model's rounding to float16."""
    second = second.to(first.device)
    if first.shape != second.shape:
        return False
    return torch.allclose(first.double(), second.double(), rtol=1e-3, atol=1e-6)
