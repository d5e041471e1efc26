"""Times training, searching, captioning, scoring and starting against a reference, in one run.

Each row has a reference, named in its line, which takes turns with this package's way in the same
process: the medians of --repeat runs, and the median, least and largest ratio of two runs beside
each other. "limit" is what the machine itself reaches: its largest matrix product in that type, or
a copy of memory, whichever takes longer. "plain" is eager torch in float32, as in
`benchmark_reference.py`. Weights and features are random, except where the packaged model is named.

Then come the translation models of --configs. With --against, the rows of `benchmark_against.py`
are timed at another commit and here.

  OMP_NUM_THREADS=2 python scripts/benchmark.py
  python scripts/benchmark.py --only photo large --repeat 20
  python scripts/benchmark.py --only translation --configs configs/multi30k_en_de.yaml
  python scripts/benchmark.py --against main --only beam-1 photo
"""

from __future__ import annotations

import copy
import io
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import benchmark_against
import benchmark_reference as reference
import benchmark_translation
import torch
from benchmark_against import BEAM, LENGTH, PLACES, SIZE, WORDS, random_captions
from benchmark_machine import Machine, described, has_bfloat16
from PIL import Image
from torch import Tensor

import captioner
from captioner import cpu
from captioner.backends.torch_captions import networks_of
from captioner.caption.folder import load_model
from captioner.cli.program import run_program, script_parser
from captioner.decoding.loop import BeamSearch, decode
from captioner.decoding.options import AnySearch
from captioner.decoding.rules import Constraints
from captioner.devices import autocast, choose_device
from captioner.errors import UserError
from captioner.evaluation.score import evaluate_captions
from captioner.model_folders import DEMO_PHOTO, model_folder
from captioner.models.caption_config import DecoderConfig
from captioner.models.caption_losses import CaptioningBatch, CaptioningLoss, ObjectiveConfig
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.vision.encoder import VGGEncoder
from captioner.vision.encoder_config import VGGConfig
from captioner.vision.images import load_image

START, END = 1, 2


@dataclass(frozen=True)
class Result:
    """One line of the table.

    plain, ours: seconds of each run of the reference and of this package.
    limit: seconds at the machine's own speed, if known. difference: between the two results.
    """

    name: str
    plain: list[float]
    ours: list[float]
    limit: float | None = None
    difference: str = ""

    def __str__(self) -> str:
        plain, ours = statistics.median(self.plain), statistics.median(self.ours)
        ratios = [one / other for one, other in zip(self.plain, self.ours, strict=True)]
        ratio = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        limit = reached = ""
        if self.limit is not None:
            limit, reached = f"{self.limit * 1e3:.1f}", f"{self.limit / ours:.2f}"
        return (
            f"{self.name:<52}{plain * 1e3:>10.1f}{ours * 1e3:>10.1f}{ratio:>20}"
            f"{limit:>10}{reached:>8}  {self.difference}"
        )


def make_decoder(machine: Machine) -> ShowAttendTellDecoder:
    """The paper's decoder, of sizes of 512, without dropout."""
    torch.manual_seed(0)
    decoder = ShowAttendTellDecoder(DecoderConfig(dropout=0.0), WORDS)
    return decoder.to(machine.device)


def make_annotations(machine: Machine, images: int) -> Tensor:
    """Random annotation vectors (B, L, D), at least 0 like those of a VGG."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(images, PLACES, SIZE, generator=generator).to(machine.device)


def step_products(rows: int) -> float:
    """Operations of one decoder step for so many rows, without the projection of keys."""
    recurrent = 4 * SIZE * 3 * SIZE + SIZE * SIZE + SIZE  # LSTM, query and gate
    output = 2 * SIZE * SIZE + SIZE * WORDS
    attended = PLACES * SIZE * 2  # Energies and the weighted sum; tanh is not counted.
    return 2.0 * rows * (recurrent + output + attended)


def training(machine: Machine, batch_size: int, dtype: torch.dtype) -> Result:
    """One step on stored features: loss, gradient, Adam."""
    decoder = make_decoder(machine)
    plain_decoder = copy.deepcopy(decoder)
    loss = CaptioningLoss(decoder, ObjectiveConfig())
    annotations = make_annotations(machine, batch_size)
    words = torch.randint(3, WORDS, (batch_size, LENGTH), device=machine.device)
    inputs = torch.cat([torch.full_like(words[:, :1], START), words], dim=1)  # (B, T)
    targets = torch.cat([words, torch.full_like(words[:, :1], END)], dim=1)  # (B, T)
    batch = CaptioningBatch(annotations, inputs, targets, torch.ones_like(inputs, dtype=torch.bool))
    plain_adam = torch.optim.Adam(plain_decoder.parameters(), 4e-4, foreach=False)
    adam = torch.optim.AdamW(decoder.parameters(), 4e-4, weight_decay=0.0, fused=True)

    def plain() -> float:
        plain_adam.zero_grad()
        value = reference.training_loss(plain_decoder, annotations, inputs, targets)
        torch.autograd.backward(value)
        plain_adam.step()
        return float(value.detach())

    def ours() -> float:
        adam.zero_grad(set_to_none=True)
        with autocast(machine.device, dtype):
            value = loss.loss(batch)["loss"]
        torch.autograd.backward(value)
        adam.step()
        return float(value.detach())

    (plain_times, own_times), (expected, value) = machine.seconds(plain, ours)
    # Forward, and twice as much back; keys have a gradient, annotation vectors have none.
    keys = 2 * 2.0 * batch_size * PLACES * SIZE * SIZE
    products = keys + 3 * (LENGTH + 1) * step_products(batch_size)
    # Keys and annotation vectors, read at every step there and back.
    moved = 2.0 * (LENGTH + 1) * 2 * annotations.numel() * dtype.itemsize
    return Result(
        f"training step, {_name(dtype)}, {batch_size} captions / plain",
        plain_times,
        own_times,
        machine.limit(products, dtype, moved),
        f"loss {abs(value - expected) / abs(expected):.0e}",
    )


def decoding(machine: Machine, images: int, dtype: torch.dtype) -> Result:
    """Beam search of LENGTH steps for so many images at a time; seconds of one image."""
    decoder = make_decoder(machine).eval()
    finished = copy.deepcopy(decoder)  # As a loaded model has it.
    if dtype is torch.float32:
        cpu.pack(finished)
    annotations = make_annotations(machine, images)
    words = LENGTH - 1  # And the end.
    constraints = Constraints(AnySearch(minimum_length=words, maximum_length=words))

    def ours() -> list[tuple[list[int], float]]:
        with torch.no_grad(), autocast(machine.device, dtype):
            hypotheses = decode(
                finished,
                finished.remember(annotations),
                start=START,
                end=END,
                strategy=BeamSearch(BEAM),
                constraints=constraints,
            )
        return [(each[0].tokens, each[0].log_probability) for each in hypotheses]

    def plain() -> list[tuple[list[int], float]]:
        return [
            reference.beam_search(decoder, annotations[image], BEAM, words, START, END)
            for image in range(sample)
        ]

    sample = min(images, 2)
    (plain_times, own_times), (expected, found) = machine.seconds(plain, ours)
    same = sum(own[0] == other[0] for own, other in zip(found, expected, strict=False))
    apart = max(abs(own[1] - other[1]) for own, other in zip(found, expected, strict=False))
    keys = 2.0 * PLACES * SIZE * SIZE
    products = keys + (1 + BEAM * (LENGTH - 1)) * step_products(1)
    weights = 4 * SIZE * 3 * SIZE + 3 * SIZE * SIZE + SIZE * WORDS
    moved = LENGTH * (2.0 * PLACES * SIZE + weights / images) * dtype.itemsize
    return Result(
        f"beam of {BEAM}, {_name(dtype)}, {images} image{'s' * (images > 1)} / plain",
        [each / sample for each in plain_times],
        [each / images for each in own_times],
        machine.limit(products, dtype, moved),
        f"{same}/{sample} the same, log p {apart:.0e}",
    )


def extraction(machine: Machine, images: int, dtype: torch.dtype) -> Result:
    """VGG-19's annotation vectors of preprocessed photos; seconds of one photo."""
    torch.manual_seed(0)
    plain_encoder = VGGEncoder(VGGConfig()).to(machine.device).eval()
    encoder = plain_encoder.for_inference(dtype).to(memory_format=torch.channels_last)
    photos = torch.randn(images, 3, 224, 224, device=machine.device)
    own_photos = photos.to(memory_format=torch.channels_last)
    with torch.no_grad():
        (plain_times, own_times), (expected, found) = machine.seconds(
            lambda: plain_encoder(photos[:1]), lambda: encoder.encode(own_photos)
        )
    products, side = 0.0, 224
    for layer in encoder.features:
        if isinstance(layer, torch.nn.MaxPool2d):
            side //= 2
        elif isinstance(layer, torch.nn.Conv2d):
            products += 2.0 * 9 * layer.in_channels * layer.out_channels * side**2
    apart = float((found[:1].float() - expected).norm() / expected.norm())
    return Result(
        f"VGG-19, {_name(dtype)}, {images} photos / one, plain",
        plain_times,
        [each / images for each in own_times],
        machine.limit(products, dtype, 0.0),
        f"features {apart:.0e}",
    )


def captioning(machine: Machine, photos: int) -> Result:
    """Files to captions by the packaged model; the reference has its saved form, in float32."""
    model = captioner.load(device=machine.device)
    with patch.dict(os.environ, {cpu.SWITCH: "0"}):
        saved = load_model(model_folder())
    networks_of(saved.backend).to(machine.device)
    files = pieces(photos)

    def plain() -> list[str]:
        return [caption.text for caption in saved.caption(files)]

    times, (expected, found) = machine.seconds(
        plain, lambda: [caption.text for caption in model.caption(files)]
    )
    changed = sum(one != two for one, two in zip(expected, found, strict=True))
    name = f"packaged model, {photos} photo{'s' * (photos > 1)} / as saved, float32"
    return Result(name, *times, difference=f"{changed} captions changed")


def large_photo(machine: Machine) -> Result:
    """A file of 12 megapixels to a caption; the reference decodes it whole."""
    model, file = captioner.load(device=machine.device), io.BytesIO()
    load_image(DEMO_PHOTO).resize((4000, 3000)).save(file, "JPEG", quality=90)
    content = file.getvalue()
    times, (whole, reduced) = machine.seconds(
        lambda: model.caption(load_image(content)).text, lambda: model.caption(content).text
    )
    difference = "the same" if whole == reduced else "another caption"
    return Result("photo of 12 megapixels / decoded whole", *times, difference=difference)


def pieces(count: int) -> list[bytes]:
    """JPEG files of different pieces of the demo photo."""
    files = []
    with Image.open(DEMO_PHOTO) as photo:
        for number in range(count):
            left, top, file = 7 * number % 100, 11 * number % 60, io.BytesIO()
            piece = photo.crop((left, top, left + photo.width - 100, top + photo.height - 60))
            piece.convert("RGB").save(file, "JPEG", quality=90)
            files.append(file.getvalue())
    return files


def cold_start(machine: Machine) -> Result:
    """`captioner caption --demo` from nothing; the reference is `import torch`."""
    times, _ = machine.seconds(
        benchmark_against.make_start("-c", "import torch"),
        benchmark_against.make_start("-m", "captioner", "caption", "--demo", "--device", "cpu"),
    )
    return Result("captioner caption --demo / import torch", *times)


def scoring(machine: Machine, images: int) -> Result:
    """BLEU, ROUGE-L and CIDEr-D from text; the reference is pycocoevalcap, with Java."""
    # Imported here: a development dependency, needed for nothing else.
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    drawn = random_captions(5 * images)
    texts = [drawn[5 * n : 5 * n + 5] for n in range(images)]
    captions = [first.replace(first[:5], rest[0][:5]) for first, *rest in texts]

    def suite() -> list[float]:
        truth = {n: [{"caption": text} for text in each] for n, each in enumerate(texts)}
        results = {n: [{"caption": text}] for n, text in enumerate(captions)}
        tokenizer = PTBTokenizer()
        truth, results = tokenizer.tokenize(truth), tokenizer.tokenize(results)
        bleu, _ = Bleu(4).compute_score(truth, results, verbose=0)
        return [*bleu, *(each().compute_score(truth, results)[0] for each in (Rouge, Cider))]

    def ours() -> list[float]:
        metrics = ("BLEU", "ROUGE-L", "CIDEr-D")
        return [*evaluate_captions(captions, texts, metrics=metrics).by_name().values()]

    times, (expected, found) = machine.seconds(suite, ours)
    apart = max(abs(one - two) for one, two in zip(expected, found, strict=True))
    name = f"scoring {images:,} captions / pycocoevalcap"
    return Result(name, *times, difference=f"scores {apart:.0e}")


def measurements(machine: Machine) -> dict[str, Callable[[], Result]]:
    """The rows that this machine can measure; without bfloat16 where it is emulated."""
    low, wide = torch.bfloat16, torch.float32
    known: dict[str, Callable[[], Result]] = {}
    if machine.device.type == "cuda":
        known["training"] = partial(training, machine, 256, low)
        known["decoding"] = partial(decoding, machine, 64, low)
        known["extraction"] = partial(extraction, machine, 256, low)
        return known
    if has_bfloat16(machine.device):
        known["training"] = partial(training, machine, 80, low)
        known["decoding-1-bfloat16"] = partial(decoding, machine, 1, low)
        known["decoding-64-bfloat16"] = partial(decoding, machine, 64, low)
        known["extraction"] = partial(extraction, machine, 8, low)
    known["training-float32"] = partial(training, machine, 80, wide)
    for images in (1, 32, 64):
        known[f"decoding-{images}"] = partial(decoding, machine, images, wide)
    known["extraction-float32"] = partial(extraction, machine, 8, wide)
    known["photo"] = partial(captioning, machine, 1)
    known["folder"] = partial(captioning, machine, 48)
    known["large"] = partial(large_photo, machine)
    known["start"] = partial(cold_start, machine)
    known["scoring"] = partial(scoring, machine, 5_000)
    return known


def print_header(machine: Machine) -> None:
    """Print the machine's own speeds, and the head of the table."""
    kinds = [torch.float32] * (machine.device.type == "cpu")
    kinds += [torch.bfloat16] * has_bfloat16(machine.device)
    speeds = [f"{_name(kind)} {machine.products(kind) / 1e9:,.0f} GFLOP/s" for kind in kinds]
    print(f"matrix products: {', '.join(speeds)}; copy: {machine.bandwidth() / 1e9:,.0f} GB/s")
    print(f"{WORDS:,} words, captions of {LENGTH}, maps of {PLACES} x {SIZE}; milliseconds")
    print(
        f"{'ours / reference':<52}{'reference':>10}{'ours':>10}{'times as fast':>20}"
        f"{'limit':>10}{'reached':>8}  difference"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main() -> None:
    """Run the program."""
    parser = script_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default: %(default)s)")
    parser.add_argument("--only", metavar="ROW", nargs="+", help="these; a wrong name lists all")
    parser.add_argument("--against", metavar="REV", help="compare with this commit")
    parser.add_argument(
        "--configs",
        type=Path,
        nargs="+",
        metavar="CONFIG",
        default=benchmark_translation.CONFIGS,
        help="translators of subwords (default: all of Multi30k from English to German)",
    )
    arguments = parser.parse_args()
    machine = Machine(choose_device(arguments.device), arguments.repeat)
    known = measurements(machine)
    every = list(benchmark_against.ROWS) if arguments.against else [*known, "translation"]
    names = arguments.only or every
    for name in names:
        if name not in every:
            raise UserError(f"--only {name!r} is not one of {', '.join(every)}, on this machine")
    print(described(machine.device))
    if arguments.against:
        benchmark_against.compare(arguments.against, names, arguments.repeat)
        return
    if known.keys() & set(names):
        print_header(machine)
    for name in filter(known.__contains__, names):
        print(known[name](), flush=True)
    if "translation" in names:
        benchmark_translation.report(machine, arguments.configs)


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark"))
