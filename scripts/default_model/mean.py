"""Average captioners, and drop their rare words.

The weights are the means of the models' (Izmailov et al. 2018, *Averaging Weights Leads to Wider
Optima and Better Generalization*); a model given twice counts twice. With `--people`, words that
people's captions have less often than `LEAST_COUNT` times go, and the others get classes, of which
a caption has one word each: no "bicycle on a bike".

  python scripts/default_model/mean.py runs/rewarded_1/model runs/rewarded_2/model \\
      --people runs/tables/frozen.jsonl runs/tables/texts.txt \\
      --length-normalisation 1.8 --out runs/mean/model
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import torch

from captioner.backends.torch_captions import TorchCaptions, make_decoder, networks_of
from captioner.caption.captioner import Captioner
from captioner.caption.folder import load_model, save_model
from captioner.cli.program import run_program, script_parser
from captioner.data.instances import read_synonyms
from captioner.data.parallel import read_lines
from captioner.files import read_text
from captioner.runs.start_model import copy_weights
from captioner.text.languages import is_noun, word_forms
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

LEAST_COUNT = 25
"""Of a word in the table, which has each caption twice, and in the captions without photos."""

KIND_SHARE = 0.03
"""Names of a thing are one class unless a larger share of the rarer one's captions has both."""

_KINDS = {"person": "", "motorcycle": "bicycle"}
"""The kind of a category, where it differs: words for people have none, bikes are one."""


def average(models: Sequence[TorchCaptions]) -> TorchCaptions:
    """The mean of models of the same sizes, with the words of the largest vocabulary."""
    mean = deepcopy(max(models, key=lambda model: len(model.vocabulary)))
    copies = []
    for model in models:
        copies.append(deepcopy(mean))
        copy_weights(model, copies[-1], with_encoder=True)
    for part in ("encoder", "decoder"):
        states = [getattr(copy, part).state_dict() for copy in copies]
        means = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        means = {name: stack.double().mean(dim=0) for name, stack in means.items()}
        getattr(mean, part).load_state_dict(means)
    return mean


def with_words(model: TorchCaptions, words: Container[str]) -> TorchCaptions:
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
    return TorchCaptions(model.encoder, decoder, vocabulary, model.preprocessing)


def word_classes(vocabulary: Vocabulary, captions: Iterable[Sequence[str]]) -> list[int]:
    """The index of the first word of each word's class: see `Vocabulary`.

    A class is a noun with its plural, and those names of one category of COCO that people keep
    apart: "a pickup truck" and "a cow and its calf" stay possible. See `KIND_SHARE`.
    """
    first = list(range(len(vocabulary)))
    for token, word in enumerate(vocabulary.words):
        forms = {each for each in word_forms(word) if each in vocabulary and is_noun(each)}
        tokens = [token, *vocabulary.encode(forms if is_noun(word) else ())]
        lowest = min(first[each] for each in tokens)
        for each in tokens:
            first[each] = lowest
    synonyms = read_synonyms()
    of_kind: defaultdict[str, set[int]] = defaultdict(set)
    for token, word in enumerate(vocabulary.words):
        for *_, category in synonyms.mentions([word]):
            of_kind[_KINDS.get(category, category)].add(first[token])
    of_kind.pop("", None)
    counts, pairs = Counter[int](), Counter[tuple[int, int]]()
    named = set().union(*of_kind.values())
    for words in captions:
        tokens = sorted({first[token] for token in vocabulary.encode(words)} & named)
        counts.update(tokens)
        pairs.update(combinations(tokens, 2))
    for nouns in of_kind.values():
        kept: list[int] = []
        for noun in sorted(nouns):  # By falling frequency.
            if all(pairs[other, noun] <= KIND_SHARE * counts[noun] for other in kept):
                kept.append(noun)
        first = [kept[0] if token in kept else token for token in first]
    return first


def with_frequent_words(model: TorchCaptions, captions: Sequence[Sequence[str]]) -> TorchCaptions:
    """The model with the frequent words of captions alone, and their classes."""
    counts = Counter(chain.from_iterable(captions))
    model = with_words(model, {word for word, count in counts.items() if count >= LEAST_COUNT})
    vocabulary = model.vocabulary
    classes = word_classes(vocabulary, set(map(tuple, captions)))
    words = vocabulary.words[len(SPECIAL_WORDS) :]
    print(f"{len(vocabulary):,} words in {len(set(classes)):,} classes")
    return replace(model, vocabulary=Vocabulary(words, classes=classes))


def main() -> None:
    """Write the mean."""
    parser = script_parser(__doc__)
    parser.add_argument("models", nargs="+", help="model folders")
    about = "table of people's captions, captions without photos"
    parser.add_argument("--people", type=Path, nargs=2, metavar=("TABLE", "TEXTS"), help=about)
    parser.add_argument("--length-normalisation", type=float, default=1.0, help="of the search")
    parser.add_argument("--truth-weight", type=float, default=0.0, help="of the search")
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    arguments = parser.parse_args()
    models = [load_model(folder) for folder in arguments.models]
    model = average([networks_of(each.backend) for each in models])
    if arguments.people:
        people, texts = arguments.people
        rows = map(json.loads, read_text(people, "table").splitlines())
        captions = [tokenize(row["caption"]) for row in rows if row["split"] == "train"]
        captions += map(tokenize, read_lines(texts))
        model = with_frequent_words(model, captions)
    search = models[-1].search.replace(
        length_normalisation=arguments.length_normalisation, truth_weight=arguments.truth_weight
    )
    save_model(Captioner(model, search), arguments.out)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
