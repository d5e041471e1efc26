"""The model that a run starts from: its words and weights."""

from collections.abc import Sequence
from itertools import chain

import torch

from captioner.backends.torch_captions import TorchCaptions
from captioner.errors import UserError
from captioner.module_weights import fill
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

LEAST_KNOWN = 1 / 3
"""Captions are in another language if a model knows a smaller share of their words. The
packaged model knows 93 to 95 % of the words of English captions (COCO, Multi30k), and 5 to 8 % of
French and German ones."""


def origin_of_words(vocabulary: Vocabulary, known: Vocabulary, name: str) -> str:
    """A sentence on the words to train on: those that the model `name` knows, and new ones."""
    if not vocabulary.extends(known):
        alone = f"vocabulary: {len(vocabulary):,} words of the captions alone"
        advice = "another language is learned, better from a thousand captions or more"
        return f"{alone}: {name} knows less than a third of what they say, so that {advice}"
    sentence = f"vocabulary: {len(known):,} words of {name}"
    if new := vocabulary.words[len(known) :]:
        more = ", ..." if len(new) > 8 else ""
        sentence += f" and {len(new):,} new: {', '.join(new[:8])}{more}"
    return sentence


def first_words(
    start: Vocabulary, captions: Sequence[Sequence[str]], minimum_count: int
) -> Vocabulary:
    """The words of a model, and new ones of captions; of another language, theirs alone."""
    is_known = [word in start for word in chain(*captions)]
    if sum(is_known) >= LEAST_KNOWN * len(is_known):
        return start.extended(captions, minimum_count)
    words = Vocabulary.build(captions, minimum_count)
    if len(words) == len(SPECIAL_WORDS):
        fault = "start_from knows less than a third of what the captions say, and they are too few"
        raise UserError(f"{fault} to learn another language from: give a thousand or more")
    return words


def copy_weights(start: TorchCaptions, networks: TorchCaptions, with_encoder: bool) -> None:
    """Fill the decoder and, if wanted, its encoder from those of `start`.

    Words that the vocabulary of `start` lacks begin as copies of `<unk>`, which they were, and
    share its probability with it. An encoder that is not filled must be that of `start`.
    """
    decoder = dict(start.decoder.state_dict())
    row_of = {word: row for row, word in enumerate(start.vocabulary.words)}
    words = networks.vocabulary.words
    rows = torch.tensor([row_of.get(word, Vocabulary.unknown) for word in words])  # (V,)
    for name in start.decoder.word_tensors:
        decoder[name] = decoder[name][rows]
    is_new = rows == Vocabulary.unknown  # (V,), with `<unk>` itself
    decoder["output.bias"][is_new] -= is_new.sum().log()
    fill(networks.decoder, decoder, "start_from does not fit this decoder")
    ours, theirs = networks.encoder.state_dict(), start.encoder.state_dict()
    if with_encoder:
        fill(networks.encoder, theirs, "start_from does not fit this encoder")
        return
    other = "start_from was trained on another encoder than this recipe's"
    fill({name: tensor.clone() for name, tensor in ours.items()}, theirs, other)
    for name, tensor in ours.items():  # Equal up to a saved model's rounding to float16.
        if not torch.allclose(theirs[name].double(), tensor.double(), rtol=1e-3, atol=1e-6):
            raise UserError(f"{other}: tensor {name!r} differs")
