"""The weights and the words that a run starts with, from a model that was trained before."""

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
    """What a run starts with.

    source: where it comes from. vocabulary: the run's own from now on, since the weights know
    words by their numbers. decoder: its weights; empty where a run is resumed, whose checkpoint
    brings them. encoder: likewise; empty as well where the run did not train its encoder.
    """

    source: Path
    vocabulary: Vocabulary
    decoder: dict[str, Tensor]
    encoder: dict[str, Tensor]

    def put_into(self, decoder: nn.Module, encoder: nn.Module, trained: bool) -> None:
        """Put the weights into the decoder, and into the encoder where it is trained along.

        Raises `UserError` naming the first tensor that does not fit, and where an encoder that is
        not trained is another than the decoder has learned to read.
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
                    or not _alike(self.encoder[name], own[name])
                ):
                    raise UserError(
                        f"start_from {self.source} was trained on another encoder than this "
                        f"recipe's: tensor {name!r} differs"
                    )


def read_start(path: Path) -> Start:
    """Read a model folder, or the checkpoint of a run, in whose folder its vocabulary lies.

    Raises `UserError` for what is neither.
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


def _alike(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are the same but for the rounding of a saved model."""
    second = second.to(first.device)
    if first.shape != second.shape:
        return False
    return torch.allclose(first.double(), second.double(), rtol=1e-3, atol=1e-6)
