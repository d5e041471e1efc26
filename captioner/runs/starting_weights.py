"""Initial weights and vocabulary of a run, from a trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from captioner.caption import load_model
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary
from captioner.weight_files import fill

WORDS = "vocabulary.json"


@dataclass(frozen=True)
class Start:
    """Initial weights and vocabulary.

    vocabulary: becomes the run's, since the weights are by word index. decoder: weights; empty for
    a resumed run, whose checkpoint has them. encoder: likewise; empty also if the earlier run did
    not train it.
    """

    source: Path
    vocabulary: Vocabulary
    decoder: dict[str, Tensor]
    encoder: dict[str, Tensor]

    def put_into(self, decoder: nn.Module, encoder: nn.Module, trained: bool) -> None:
        """Fill the decoder and, if it is trained, the encoder.

        Raises `UserError` for the first tensor that does not fit, and if an encoder that is not
        trained differs from the one that the decoder was trained on.
        """
        if self.decoder:
            fill(decoder, self.decoder, f"start_from {self.source} does not fit this decoder")
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


def read_start(path: Path) -> Start:
    """Read a model folder, or a run's checkpoint with the vocabulary beside it.

    Raises `UserError` for anything else.
    """
    if path.is_dir():
        captioner = load_model(path)
        return Start(
            path,
            captioner.vocabulary,
            dict(captioner.decoder.state_dict()),
            dict(captioner.encoder.state_dict()),
        )
    if not path.exists():
        raise UserError(f"start_from {path} does not exist")
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
