"""Translates captions by a model, and keeps the pairs that it is surest of, to train it on.

Self-training (He, Gu, Shen and Ranzato 2020, *Revisiting Self-Training for Neural Sequence
Generation*): `self.en` and `self.LANGUAGE` hold the translations with the highest log-probability a
word, and their captions, in random order, without those whose lengths do not fit. Captions of 5 to
25 words are taken, each once, with a capital and a full stop, as Multi30k has them.

  python scripts/caption_sentences/translate.py data/everyday/text/coco_captions.txt.gz \\
      --model english_german --language de --out runs/self_german
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from pathlib import Path

import captioner
from captioner.cli.program import run_program, script_parser
from captioner.data.parallel import read_lines
from captioner.files import write_text
from captioner.progress import progress_bar


def prepared(captions: Iterable[str]) -> list[str]:
    """Captions as sentences, each once."""
    found: dict[str, str] = {}
    for caption in captions:
        words = caption.strip(' "').split()
        if 5 <= len(words) <= 25:
            sentence = " ".join(words).replace(" .", ".").replace(" ,", ",")
            sentence = sentence[0].upper() + sentence[1:]
            if sentence[-1] not in ".!?":
                sentence = sentence.rstrip(" ,;:-") + "."
            found.setdefault(sentence.lower(), sentence)
    return list(found.values())


def main() -> None:
    """Run the program."""
    parser = script_parser(__doc__)
    parser.add_argument("captions", type=Path, help="a text file, a caption a line; .gz as well")
    parser.add_argument("--model", required=True, help="a translator's folder or name")
    parser.add_argument(
        "--language", required=True, help="language that it writes, the suffix of its file"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the two files")
    parser.add_argument("--most", type=int, default=60_000, help="captions (default: %(default)s)")
    parser.add_argument(
        "--share", type=float, default=0.55, help="share of them to keep (default: %(default)s)"
    )
    arguments = parser.parse_args()
    sentences = prepared(read_lines(arguments.captions))
    random.Random(0).shuffle(sentences)
    sentences = sorted(sentences[: arguments.most], key=lambda each: len(each.split()))
    model = captioner.load_translator(arguments.model, precision="float32")
    pairs = []
    translations = model.translate(iter(sentences), batch_size=64)
    with progress_bar("translating", len(sentences), "captions") as progress:
        for source, translation in zip(sentences, translations, strict=True):
            words, target = len(source.split()), translation.text
            target_words = len(target.split())
            sureness = translation.log_probability / max(1, target_words)  # Nats a word.
            fits = 0.6 < target_words / words < 1.7  # As the lengths of translations do.
            pairs.append((sureness, source, target, fits))
            progress.update()
    pairs.sort(reverse=True)
    surest = pairs[: round(len(pairs) * arguments.share)]
    kept = [each for each in surest if each[-1]]
    random.Random(1).shuffle(kept)
    for suffix, column in (("en", 1), (arguments.language, 2)):
        lines = "".join(f"{each[column]}\n" for each in kept)
        write_text(arguments.out / f"self.{suffix}", lines)
    print(f"{len(kept):,} of {len(pairs):,} captions and their translations are in {arguments.out}")


if __name__ == "__main__":
    sys.exit(run_program(main, "translate"))
