"""Average captioners, and add the trigrams that people write.

The weights are the means of the models' (Izmailov et al. 2018, *Averaging Weights Leads to Wider
Optima and Better Generalization*); a model given twice counts twice. Words that people's captions
have less often than `LEAST_COUNT` times go; the search keeps to the triples that people wrote.

  python scripts/default_model/mean.py START START runs/self_critical/model \\
      --people runs/tables/people.jsonl --texts runs/tables/texts.txt \\
      --length-normalisation 1.8 --out runs/mean/model
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Container, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch

from captioner.caption import Captioner, load_model, save_model
from captioner.caption.folder import make_decoder
from captioner.cli.program import run_program
from captioner.data.parallel import read_lines
from captioner.decoding.constraints import trigram_keys
from captioner.files import read_text
from captioner.runs.caption_task import copy_weights
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

LEAST_COUNT = 25
"""Of a word in the table, which has each caption of an everyday photo three times."""


def average(models: Sequence[Captioner]) -> Captioner:
    """The mean of models of one encoder whose vocabularies begin alike; it has the largest one.

    It searches as the last model does.
    """
    largest = max(models, key=lambda model: len(model.vocabulary))
    states = []
    for model in models:
        whole = deepcopy(largest)
        copy_weights(model, whole, with_encoder=False)
        states.append(whole.decoder.state_dict())
    mean = replace(deepcopy(largest), search=models[-1].search)
    mean.decoder.load_state_dict(
        {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}
    )
    return mean


def with_words(model: Captioner, words: Container[str]) -> Captioner:
    """The model with some of its words only, in its own order."""
    tokens = [
        token
        for token, word in enumerate(model.vocabulary.words)
        if token < len(SPECIAL_WORDS) or word in words
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
    parser.add_argument("models", nargs="+", help="model folders")
    parser.add_argument("--people", type=Path, required=True, help="table of people's captions")
    parser.add_argument("--texts", type=Path, required=True, help="captions without photos")
    parser.add_argument("--length-normalisation", type=float, required=True, help="of the search")
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    arguments = parser.parse_args()
    rows = map(json.loads, read_text(arguments.people, "table").splitlines())
    captions = [tokenize(row["caption"]) for row in rows if row["split"] == "train"]
    captions += map(tokenize, read_lines(arguments.texts))
    counts = Counter(chain.from_iterable(captions))
    model = average([load_model(folder) for folder in arguments.models])
    model = with_words(model, {word for word, count in counts.items() if count >= LEAST_COUNT})
    triples = torch.tensor(PeoplesNgrams(captions).token_trigrams(model.vocabulary))  # (N, 3)
    first, second, third = triples.unbind(dim=1)  # (N,) each
    model.trigrams = trigram_keys(first, second, third, len(model.vocabulary))  # (N,)
    model.search = model.search.override(length_normalisation=arguments.length_normalisation)
    save_model(model, arguments.out)
    print(f"{len(model.vocabulary):,} words, {len(triples):,} triples of them")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
