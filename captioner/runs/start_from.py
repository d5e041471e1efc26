"""What training takes over from the model that it starts from: words, n-grams and weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from captioner.caption.captioner import Captioner
from captioner.decoding.constraints import ngram_keys, ngrams_of_keys
from captioner.decoding.options import ORDER
from captioner.errors import UserError
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.vocabulary import Vocabulary
from captioner.weight_files import fill

LEAST_KNOWN = 1 / 3
"""Captions are in another language if a model knows a smaller share of their words than this. The
packaged model knows 93 to 95 % of the words of English captions (COCO, Multi30k), and 5 to 8 % of
French and German ones."""


def first_words(
    start: Vocabulary, captions: Sequence[Sequence[str]], minimum_count: int
) -> Vocabulary:
    """The words of a model to start from, and new ones of training captions.

    captions: tokenised. Of another language, see `LEAST_KNOWN`, their words alone.
    """
    is_known = [word in start for word in chain(*captions)]
    if sum(is_known) < LEAST_KNOWN * len(is_known):
        return Vocabulary.build(captions, minimum_count)
    return start.extended(captions, minimum_count)


def known_ngrams(
    start: Captioner, vocabulary: Vocabulary, captions: Sequence[Sequence[str]]
) -> Tensor | None:
    """The n-grams of a model to start from, and those of training captions: keys (N,), sorted.

    Words that a training caption has together do not clash. vocabulary: from `first_words`; of
    another language, the n-grams are those of the captions alone. captions: tokenised. None where
    `start` knows none.
    """
    if start.ngrams is None:
        return None
    ngrams = PeoplesNgrams(captions).token_ngrams(vocabulary, ORDER)
    if vocabulary.extends(start.vocabulary):
        together: defaultdict[int, set[int]] = defaultdict(set)
        for words in captions:
            tokens = set(vocabulary.encode(words))
            for token in tokens:
                together[token] |= tokens
        known = ngrams_of_keys(start.ngrams, len(start.vocabulary))  # (N, ORDER)
        ngrams += [
            (first, *between, last)
            for first, *between, last in known.tolist()
            if vocabulary.start not in between or last not in together[first]
        ]
    elif not ngrams:
        raise UserError(
            "start_from knows less than a third of what the captions say, and they are too few to "
            "learn another language from: give a thousand or more"
        )
    columns = torch.tensor(ngrams, dtype=torch.long).unbind(dim=1)  # (N,) each
    keys: Tensor = torch.unique(ngram_keys(columns, len(vocabulary)))
    return keys


def copy_weights(start: Captioner, captioner: Captioner, with_encoder: bool) -> None:
    """Fill a captioner's decoder and, if wanted, its encoder from those of `start`.

    Words that the vocabulary of `start` lacks begin as copies of `<unk>`, which they were, and
    share its probability with it. An encoder that is not filled must be that of `start`.
    """
    decoder = dict(start.decoder.state_dict())
    row_of = {word: row for row, word in enumerate(start.vocabulary.words)}
    words = captioner.vocabulary.words
    rows = torch.tensor([row_of.get(word, Vocabulary.unknown) for word in words])  # (V,)
    for name in start.decoder.word_tensors:
        decoder[name] = decoder[name][rows]
    is_new = rows == Vocabulary.unknown  # (V,), with `<unk>` itself
    decoder["output.bias"][is_new] -= is_new.sum().log()
    fill(captioner.decoder, decoder, "start_from does not fit this decoder")
    if with_encoder:
        fill(captioner.encoder, start.encoder.state_dict(), "start_from does not fit this encoder")
        return
    other = "start_from was trained on another encoder than this recipe's"
    ours = {name: tensor.clone() for name, tensor in captioner.encoder.state_dict().items()}
    fill(ours, start.encoder.state_dict(), other)
    for name, tensor in captioner.encoder.state_dict().items():
        # Equal up to a saved model's rounding to float16.
        if not torch.allclose(ours[name].double(), tensor.double(), rtol=1e-3, atol=1e-6):
            raise UserError(f"{other}: tensor {name!r} differs")
