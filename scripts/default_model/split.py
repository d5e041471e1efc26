"""Split the convolutions of a captioner's encoder in two, and teach it to see as before.

A 3x3 convolution of C channels becomes one of C / 2 and a 1x1 one of C. They begin as the least
squares solution of that rank, for the inputs that the layers before already give (Zhang et al.
2016, *Accelerating Very Deep Convolutional Networks for Classification and Detection*, section
3.3); then all weights learn to give the annotation vectors that the whole encoder gives. Photos are
learned from whole, as they are captioned, and mirrored in every second epoch. OUT/model is the
captioner with this encoder.

  python scripts/default_model/split.py MODEL --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --epochs 2 --out runs/split
"""

from __future__ import annotations

import sys
from dataclasses import replace

import torch
from photos import Folders, Photos, batches, folder_parser, load_photos, train_on_photos
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as transforms

from captioner.backends.torch_captions import networks_of
from captioner.caption.folder import load_model, save_model
from captioner.cli.program import run_program
from captioner.vision.encoder import VGGEncoder
from captioner.vision.encoder_config import VGGConfig
from captioner.vision.preprocessing import IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION

RANK = 0.5

SAMPLE, PLACES = 100, 300
"""Photos, and places in each, over which the convolutions are split."""

LEARNING_RATE = 3e-5


class Pupil(nn.Module):
    """The split encoder, and the whole one, from which it learns.

    deviation: (D,) of the annotation vectors, by which errors are divided, as the decoder does.
    """

    def __init__(self, encoder: VGGEncoder, whole: VGGEncoder, deviation: Tensor) -> None:
        super().__init__()
        self.encoder = encoder.to(memory_format=torch.channels_last)
        self._whole = (whole.requires_grad_(False),)  # In a tuple: it is not trained.
        self._deviation = (deviation,)

    def loss(self, pixels: Tensor) -> dict[str, Tensor]:
        """Mean squared error of photos (B, 3, S, S) in [0, 1], in squared deviations."""
        pixels = transforms.normalize(pixels, IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION)
        with torch.no_grad():
            wanted = self._whole[0].encode(pixels)  # (B, L, D)
        error = (self.encoder(pixels).float() - wanted) / self._deviation[0]
        return {"loss": error.square().mean()}


@torch.no_grad()
def split_encoder(whole: VGGEncoder, photos: Tensor) -> VGGEncoder:
    """An encoder without batch normalisation, split by least squares over photos (N, 3, S, S)."""
    whole = whole.fold_batch_norm()
    encoder = VGGEncoder(whole.config.replace(rank=RANK)).eval()
    seen = [
        transforms.normalize(part, IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION)
        for part in batches(photos)
    ]
    wanted = seen
    layers = iter([*encoder.features, *encoder.context])
    for layer in [*whole.features, *whole.context]:
        own = next(layers)
        wanted = [layer(part) for part in wanted]
        if isinstance(layer, nn.Conv2d) and isinstance(own, nn.Conv2d) and own.bias is None:
            second = next(layers)
            assert isinstance(second, nn.Conv2d)
            _split(layer, own, second, [layer(part) for part in seen], wanted)
            own = nn.Sequential(own, second)
        elif isinstance(layer, nn.Conv2d):
            own.load_state_dict(layer.state_dict())
        seen = [own(part) for part in seen]
    return encoder


def _split(
    layer: nn.Conv2d, first: nn.Conv2d, second: nn.Conv2d, seen: list[Tensor], wanted: list[Tensor]
) -> None:
    """Fit two convolutions in place of a layer, by least squares of their rank.

    seen, wanted: the layer's responses (B, C, h, w) to the split encoder's inputs and to the whole
        one's, in batches.
    """
    generator = torch.Generator().manual_seed(0)
    columns: list[list[Tensor]] = [[], []]
    for parts in zip(seen, wanted, strict=True):
        places = torch.randint(parts[0][0, 0].numel(), (PLACES,), generator=generator)
        for column, part in zip(columns, parts, strict=True):
            column.append(part.flatten(2)[:, :, places].transpose(1, 2).flatten(0, 1).double())
    inputs, outputs = (torch.cat(column) for column in columns)  # (B * places, C) each
    mean = inputs.mean(dim=0)  # (C,)
    centred = inputs - mean
    gram = centred.T @ centred  # (C, C)
    ridge = 1e-5 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    solution = torch.linalg.solve(gram + ridge, centred.T @ (outputs - outputs.mean(dim=0)))
    _, directions = torch.linalg.eigh((centred @ solution).T @ (centred @ solution))
    directions = directions[:, -first.out_channels :]  # (C, C / 2), of the largest variance
    down = (solution @ directions).T  # (C / 2, C)
    assert layer.bias is not None
    assert second.bias is not None
    first.weight.copy_((down @ layer.weight.flatten(1).double()).view_as(first.weight))
    second.weight.copy_(directions[:, :, None, None])
    second.bias.copy_(outputs.mean(dim=0) - directions @ down @ (mean - layer.bias.double()))


@torch.no_grad()
def kept(pupil: Pupil, photos: Tensor) -> float:
    """The share of the variance of the annotation vectors that the pupil keeps, about."""
    losses = [float(pupil.loss(part)["loss"]) * len(part) for part in batches(photos)]
    return 1 - sum(losses) / len(photos)


def main() -> None:
    """Split."""
    parser = folder_parser(__doc__, trains=True, out="the run's folder")
    parser.add_argument("model", help="model folder or name")
    arguments = parser.parse_args()
    folders = Folders(arguments.flickr, arguments.everyday)
    captioner = load_model(arguments.model)
    photos = load_photos(folders.training_photos())
    held_out = {name: load_photos(each) for name, each in folders.validation_photos().items()}
    torch.manual_seed(0)
    networks = networks_of(captioner.backend)
    assert isinstance(networks.encoder, VGGEncoder)
    assert isinstance(networks.encoder.config, VGGConfig)
    rows = torch.randperm(len(photos))[:SAMPLE]
    encoder = split_encoder(networks.encoder, photos[rows])
    whole = networks.encoder.for_inference(getattr(torch, arguments.precision))
    pupil = Pupil(encoder, whole, networks.decoder.standardisation.deviation)

    def scores() -> dict[str, float]:
        return {name: kept(pupil, each) for name, each in held_out.items()}

    def save() -> None:
        trained = replace(networks, encoder=pupil.encoder)
        save_model(replace(captioner, backend=trained), arguments.out / "model")

    settings = {"learning_rate": LEARNING_RATE, "warmup_steps": 100}
    train_on_photos(pupil, Photos(photos), arguments, scores, save, **settings)


if __name__ == "__main__":
    sys.exit(run_program(main, "split"))
