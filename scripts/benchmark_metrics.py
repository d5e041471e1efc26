"""How much faster captions are scored here than by the COCO evaluation, on the same captions.

The first caption of every image is scored against its others, from text to scores: tokeniser,
BLEU-1 to BLEU-4, ROUGE-L, CIDEr-D; once by this package and once by `pycocoevalcap` with Java, both
in this process, one after the other, the median of --repeat times each. The scores are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmark_machine import described

from captioner.cli.program import run_program
from captioner.data.coco import read_coco
from captioner.errors import UserError
from captioner.evaluation.captions import evaluate_captions

METRICS = ("BLEU", "ROUGE-L", "CIDEr-D")
NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D")


def ours(captions: list[str], references: list[list[str]]) -> list[float]:
    """The six scores, by this package."""
    return list(evaluate_captions(captions, references, metrics=METRICS).by_name().values())


def suite(captions: list[str], references: list[list[str]]) -> list[float]:
    """The six scores, by `pycocoevalcap`."""
    # Imported here: a development dependency, needed for nothing else.
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    tokenizer = PTBTokenizer()
    truth = {
        image: [{"caption": caption} for caption in of_image]
        for image, of_image in enumerate(references)
    }
    results = {image: [{"caption": caption}] for image, caption in enumerate(captions)}
    truth, results = tokenizer.tokenize(truth), tokenizer.tokenize(results)
    bleu, _ = Bleu(4).compute_score(truth, results, verbose=0)
    rouge, _ = Rouge().compute_score(truth, results)
    cider, _ = Cider().compute_score(truth, results)
    return [*bleu, rouge, cider]


def timed(work: Callable[[], list[float]], repeat: int) -> tuple[list[float], float]:
    """What the work gives, and its seconds, the median of so many times."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        scores = work()
        times.append(time.perf_counter() - start)
    return scores, statistics.median(times)


def read(path: Path, images: int) -> tuple[list[str], list[list[str]]]:
    """The first captions and the other captions of so many images, repeated if they are fewer."""
    found = [image.captions for image in read_coco(path, path, check_files=False).images]
    usable = [captions for captions in found if len(captions) > 1]
    if not usable:
        raise UserError(f"caption file {path} has no image with two captions or more")
    if len(usable) < images:
        print(f"{path} has {len(usable):,} images; {images - len(usable):,} of them come again")
    chosen = [usable[number % len(usable)] for number in range(images)]
    return [captions[0] for captions in chosen], [list(captions[1:]) for captions in chosen]


@contextlib.contextmanager
def quiet_java() -> Any:
    """Keep the tokeniser's own report, which Java writes to the standard error, off the screen."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captions", type=Path, help="captions in COCO's format")
    parser.add_argument("--images", type=int, default=5000, help="(default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="times each (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.images < 2 or arguments.repeat < 1:
        raise UserError("--images is at least 2, and --repeat at least 1")
    captions, references = read(arguments.captions, arguments.images)
    print(described(torch.device("cpu")))
    own, own_time = timed(lambda: ours(captions, references), arguments.repeat)
    with quiet_java():
        theirs, their_time = timed(lambda: suite(captions, references), arguments.repeat)
    print(f"{'':<10}{'captioner':>16}{'pycocoevalcap':>16}{'difference':>12}")
    for name, first, second in zip(NAMES, own, theirs, strict=True):
        print(f"{name:<10}{first:>16.10f}{second:>16.10f}{abs(first - second):>12.1e}")
    print(f"{'seconds':<10}{own_time:>16.3f}{their_time:>16.3f}")
    print(f"{arguments.images:,} images: {their_time / own_time:.1f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark_metrics"))
