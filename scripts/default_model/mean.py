"""Average captioners, and add the 4-grams that people write and the words that they keep apart.

The weights are the means of the models' (Izmailov et al. 2018, *Averaging Weights Leads to Wider
Optima and Better Generalization*); a model given twice counts twice. With `--rules`, words that
people's captions have less often than `LEAST_COUNT` times go; the search keeps to the 4-grams that
people wrote, or that a model said of whose words people wrote each three, and never says two words
that clash: "a surfboard on a snowboard", "a bicycle on a bike".

  python scripts/default_model/mean.py runs/rewarded_1/model runs/rewarded_2/model \\
      --rules runs/tables/frozen.jsonl runs/tables/texts.txt runs/said/said.json \\
      --length-normalisation 1.8 --out runs/mean/model
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Container, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from captioner.backends.torch_captions import TorchCaptions, make_decoder, networks_of
from captioner.caption.captioner import Captioner
from captioner.caption.folder import load_model, save_model
from captioner.cli.program import run_program, script_parser
from captioner.data.instances import read_synonyms
from captioner.data.parallel import read_lines
from captioner.decoding.rules import ORDER, ngram_keys, ngram_table
from captioner.files import read_json, read_text
from captioner.runs.start_model import copy_weights
from captioner.text.languages import FUNCTION_WORDS
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

LEAST_COUNT = 25
"""Of a word in the table, which has each caption twice, and in the captions without photos."""

EXPECTED = 2
"""Two words clash if no caption has both, though so many would if words were drawn by chance."""

KIND_SHARE = 0.03
"""Two words of one kind clash if no larger a share of the captions with the rarer one has both."""

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


def clashes(captions: Sequence[Sequence[str]], vocabulary: Vocabulary) -> Tensor:
    """The pairs of content words that people keep apart, with starts between them: (N, 4).

    Of one kind are words that name the same category of COCO; see `EXPECTED` and `KIND_SHARE`.
    """
    size, synonyms = len(vocabulary), read_synonyms()
    together = torch.zeros(size, size)
    for begin in range(0, len(captions), 5000):
        part = captions[begin : begin + 5000]
        has_word = torch.zeros(len(part), size)
        for row, words in enumerate(part):
            has_word[row, vocabulary.encode(words)] = 1
        together += has_word.T @ has_word  # (V, V)
    counts = together.diagonal()  # (V,)
    clash = (together == 0) & (counts[:, None] * counts >= EXPECTED * len(captions))  # (V, V)
    named = [[name for *_, name in synonyms.mentions([word])] for word in vocabulary.words]
    names = [_KINDS.get(each[0], each[0]) if each else "" for each in named]
    kinds = torch.tensor([["", *synonyms.categories].index(name) for name in names])  # (V,)
    rarer = torch.minimum(counts[:, None], counts)  # (V, V)
    is_one_kind = (kinds[:, None] == kinds) & (kinds > 0)  # (V, V)
    clash |= is_one_kind & (together <= KIND_SHARE * rarer)
    content = [word not in {*FUNCTION_WORDS, *SPECIAL_WORDS} for word in vocabulary.words]
    is_content = torch.tensor(content)  # (V,)
    first, second = (clash & is_content[:, None] & is_content).nonzero().unbind(dim=1)  # (N,) each
    start = torch.full_like(first, vocabulary.start)
    return torch.stack([first, *(start,) * (ORDER - 2), second], dim=1)


def with_rules(
    model: TorchCaptions, captions: Sequence[Sequence[str]], said: Sequence[Sequence[str]]
) -> TorchCaptions:
    """The model with the frequent words of captions, their 4-grams and the words kept apart.

    said: captions of a model; the 4-grams of those without a triple that nobody wrote count, too.
    """
    counts = Counter(chain.from_iterable(captions))
    model = with_words(model, {word for word, count in counts.items() if count >= LEAST_COUNT})
    is_unseen = PeoplesNgrams(captions).unseen
    written = PeoplesNgrams([*captions, *(words for words in said if not is_unseen(words))])
    ngrams = torch.tensor(written.token_ngrams(model.vocabulary, ORDER))  # (N, 4)
    apart = clashes(list({tuple(words) for words in captions}), model.vocabulary)  # (M, 4)
    columns = torch.cat([ngrams, apart]).unbind(dim=1)  # (N + M,) each
    keys = ngram_keys(columns, len(model.vocabulary)).sort().values.numpy()
    model.ngrams = torch.from_numpy(ngram_table(keys, len(model.vocabulary)))
    counted = (len(model.vocabulary), len(ngrams), len(apart))
    print("{:,} words, {:,} 4-grams of them, {:,} clashes".format(*counted))
    return model


def main() -> None:
    """Write the mean."""
    parser = script_parser(__doc__)
    parser.add_argument("models", nargs="+", help="model folders")
    about = "table of people's captions, captions without photos, results of evaluate"
    files = ("PEOPLE", "TEXTS", "SAID")
    parser.add_argument("--rules", type=Path, nargs=3, metavar=files, help=about)
    parser.add_argument("--length-normalisation", type=float, default=1.0, help="of the search")
    parser.add_argument("--truth-weight", type=float, default=0.0, help="of the search")
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    arguments = parser.parse_args()
    models = [load_model(folder) for folder in arguments.models]
    model = average([networks_of(each.backend) for each in models])
    if arguments.rules:
        people, texts, results = arguments.rules
        rows = map(json.loads, read_text(people, "table").splitlines())
        captions = [tokenize(row["caption"]) for row in rows if row["split"] == "train"]
        captions += map(tokenize, read_lines(texts))
        said = [tokenize(record["caption"]) for record in read_json(results, "captions")]
        model = with_rules(model, captions, said)
    search = models[-1].search.replace(
        length_normalisation=arguments.length_normalisation, truth_weight=arguments.truth_weight
    )
    save_model(Captioner(model, search), arguments.out)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
