"""Give a decoder that was trained on the teachers' maps an encoder that sees nearly the same.

`distill.py` taught the encoder's annotation vectors a to give the teachers' by a linear layer,
W a + b. Wherever the decoder uses an annotation vector it multiplies it by a matrix, so W is
multiplied into these matrices, and the decoder reads the encoder's own vectors. They are
standardised over training photos; the constant that is then left is close to zero and dropped.

  python scripts/everyday_model/fold.py --words runs/words/model --eyes runs/eyes \\
      --flickr data/flickr8k --everyday data/everyday --out runs/folded
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import photos as worlds
import torch
from safetensors.torch import load_file
from torch import Tensor

from captioner.caption import Captioner
from captioner.caption.captioner_folder import load_model, save_model
from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.vision.vgg import VGGConfig
from captioner.vision.weights import build_encoder

SAMPLE = 1000
"""Training photos over which the encoder's annotation vectors are standardised."""


@torch.no_grad()
def fold(decoder: ShowAttendTellDecoder, readout: dict[str, Tensor], vectors: Tensor) -> None:
    """Multiply a linear layer into every matrix of a decoder that reads annotation vectors.

    readout: `weight` (D, D, 1, 1) and `bias` (D,). vectors: annotation vectors (N, L, D) of the
    encoder, by which the decoder standardises them from now on.
    Raises `UserError` for a decoder without standardisation.
    """
    standardisation = decoder.standardisation
    if standardisation is None:
        raise UserError("the decoder must standardise annotation vectors (decoder.standardise)")
    wanted = standardisation.deviation.clone()  # (D,)
    standardisation.fit([vectors])
    matrix = readout["weight"].flatten(1) * standardisation.deviation / wanted[:, None]  # (D, D)
    embedding = decoder.config.embedding_size
    readers = [
        decoder.attention.score.key_projection.weight,
        decoder.lstm.weight_ih[:, embedding:],
        decoder.initial_hidden.weight,
        decoder.initial_cell.weight,
    ]
    if decoder.config.deep_output:
        readers.append(decoder.output_context.weight)
    for weight in readers:
        weight.copy_(weight @ matrix)


def main() -> None:
    """Fold, and save the captioner."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, purpose in (
        ("words", "model folder of the decoder that was trained on the teachers' maps"),
        ("eyes", "folder of distill.py"),
        ("flickr", "folder of Flickr8k"),
        ("everyday", "folder of the everyday photos"),
        ("out", "model folder to write"),
    ):
        parser.add_argument(f"--{name}", type=Path, required=True, help=purpose)
    parser.add_argument("--name", default="vgg11_bn", help="which VGG (default: %(default)s)")
    arguments = parser.parse_args()
    trained = load_model(arguments.words)
    encoder = build_encoder(
        VGGConfig(name=arguments.name), str(arguments.eyes / "encoder.safetensors")
    )
    captioner = Captioner(
        encoder, trained.decoder, trained.vocabulary, trained.preprocessing, trained.search
    )
    photos = worlds.Folders(arguments.flickr, arguments.everyday).training_photos()
    rows = torch.randperm(len(photos), generator=torch.Generator().manual_seed(0))[:SAMPLE]
    loaded = worlds.load_photos([photos[row] for row in rows.tolist()])
    preprocessing = trained.preprocessing
    mean = torch.tensor(preprocessing.mean).view(1, 3, 1, 1)
    deviation = torch.tensor(preprocessing.standard_deviation).view(1, 3, 1, 1)
    vectors = torch.cat(
        [captioner.encode((part - mean) / deviation) for part in worlds.batches(loaded, 50)]
    )  # (N, L, D)
    fold(trained.decoder, load_file(arguments.eyes / "readout.safetensors"), vectors)
    save_model(captioner, arguments.out, torch.float32)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
