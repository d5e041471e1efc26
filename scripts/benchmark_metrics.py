"""How much faster captions are scored here than by the COCO evaluation, on the same captions.

The first caption of every image is scored against its others, from text to scores: tokeniser,
BLEU-1 to BLEU-4, ROUGE-L, CIDEr-D; by this package and by `pycocoevalcap` with Java, both in this
process, in turn, the median of three times each. The scores are compared.

  python scripts/benchmark_metrics.py data/coco/annotations/captions_val2017.json
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import torch
from benchmark_machine import Machine, described

from captioner.cli.program import run_program
from captioner.data.coco import read_coco
from captioner.evaluation.captions import evaluate_captions

IMAGES, TIMES = 5000, 3


def ours(captions: list[str], references: list[list[str]]) -> dict[str, float]:
    """The six scores, by this package."""
    metrics = ("BLEU", "ROUGE-L", "CIDEr-D")
    return evaluate_captions(captions, references, metrics=metrics).by_name()


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


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captions", type=Path, help="captions in COCO's format")
    path = parser.parse_args().captions
    found = [image.captions for image in read_coco(path, path, check_files=False).images]
    usable = [captions for captions in found if len(captions) > 1]
    chosen = [usable[number % len(usable)] for number in range(IMAGES)]
    captions = [first for first, *_ in chosen]
    references = [others for _, *others in chosen]
    cpu = torch.device("cpu")
    times, (own, theirs) = Machine(cpu, TIMES).seconds(
        lambda: ours(captions, references), lambda: suite(captions, references)
    )
    seconds = [statistics.median(each) for each in times]
    print(described(cpu))
    print(f"{'':<10}{'captioner':>16}{'pycocoevalcap':>16}{'difference':>12}")
    for (name, first), second in zip(own.items(), theirs, strict=True):
        print(f"{name:<10}{first:>16.10f}{second:>16.10f}{abs(first - second):>12.1e}")
    print(f"{'seconds':<10}{seconds[0]:>16.3f}{seconds[1]:>16.3f}")
    again = max(0, IMAGES - len(usable))
    print(f"{IMAGES:,} images, {again:,} again: {seconds[1] / seconds[0]:.1f} times as fast")


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark_metrics"))
