"""Average captioners, and tell the mean what people write.

The weights are the means of those of the models (Izmailov et al. 2018, *Averaging Weights Leads to
Wider Optima and Better Generalization*). Words that people's captions have less often than
`LEAST_COUNT` times go; the search keeps to the triples of words that people wrote.

  python scripts/default_model/mean.py runs/bold/model runs/true/model \\
      --people runs/tables/people.jsonl --texts runs/tables/texts.txt \\
      --out runs/mean/model
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import torch

from captioner.caption import Captioner, load_model, save_model
from captioner.caption.folder import make_decoder
from captioner.cli.program import run_program
from captioner.data.parallel import read_lines
from captioner.decoding.constraints import trigram_keys
from captioner.files import read_text
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

LEAST_COUNT = 20


@torch.no_grad()
def average(models: Sequence[Captioner]) -> Captioner:
    """The first model with the mean of all weights, which must be of one shape."""
    first, *others = models
    for part in ("encoder", "decoder"):
        weights = getattr(first, part).state_dict()
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                all_of = [tensor, *(getattr(other, part).state_dict()[name] for other in others)]
                tensor.copy_(torch.stack(all_of).double().mean(dim=0))
    return first


def with_words(model: Captioner, words: Sequence[str]) -> Captioner:
    """The model with some of its words only, in its own order."""
    kept = set(words)
    tokens = [
        token
        for token, word in enumerate(model.vocabulary.words)
        if token < len(SPECIAL_WORDS) or word in kept
    ]
    vocabulary = Vocabulary(model.vocabulary.words[token] for token in tokens[len(SPECIAL_WORDS) :])
    decoder = make_decoder(model.decoder.config, len(vocabulary))
    tensors = dict(model.decoder.state_dict())
    for name in decoder.word_tensors:
        tensors[name] = tensors[name][tokens]  # (V', ...)
    decoder.load_state_dict(tensors)
    return Captioner(model.encoder, decoder, vocabulary, model.preprocessing, model.search)


def main() -> None:
    """Write the mean."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, help="model folders")
    parser.add_argument("--people", type=Path, required=True, help="table of people's captions")
    parser.add_argument("--texts", type=Path, required=True, help="captions without photos")
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    arguments = parser.parse_args()
    rows = map(json.loads, read_text(arguments.people, "table").splitlines())
    captions = [tokenize(row["caption"]) for row in rows if row["split"] == "train"]
    captions += map(tokenize, read_lines(arguments.texts))
    counts = Counter(chain.from_iterable(captions))
    model = average([load_model(folder) for folder in arguments.models])
    model = with_words(model, [word for word, count in counts.items() if count >= LEAST_COUNT])
    triples = torch.tensor(PeoplesNgrams(captions).token_trigrams(model.vocabulary))  # (N, 3)
    first, second, third = triples.unbind(dim=1)  # (N,) each
    model.trigrams = trigram_keys(first, second, third, len(model.vocabulary))  # (N,)
    save_model(model, arguments.out)
    print(f"{len(model.vocabulary):,} words, {len(triples):,} triples of them")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
