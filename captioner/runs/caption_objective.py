"""The loss of a captioning recipe, and its initial word vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from captioner.caption import (
    CaptioningLoss,
    HardAttentionLoss,
    Reward,
    SelfCriticalLoss,
    ShowAttendTellDecoder,
)
from captioner.caption.base import CaptionDecoder, read_word_vectors
from captioner.caption.losses import SelfCriticalConfig
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.word_precision import content_stems
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.vision.encoder import Encoder


def make_loss(
    recipe: CaptioningRecipe,
    decoder: CaptionDecoder,
    encoder: Encoder | None,
    vocabulary: Vocabulary,
    references: Sequence[Sequence[Sequence[str]]],
) -> CaptioningLoss:
    """The recipe's loss.

    encoder: one that is trained, or None; its stages before `train_from` are frozen here.
    references: the words of each training photo's captions, by row, for the self-critical reward.
    Raises `UserError` if objective and attention do not fit, and for self-critical training on
    fewer than two photos.
    """
    if encoder is not None:
        encoder.freeze(recipe.encoder.train_from - 1, recipe.encoder.batch_norm_frozen)
    if recipe.decoder.selection == "hard":
        assert isinstance(decoder, ShowAttendTellDecoder)
        return HardAttentionLoss(decoder, recipe.objective, encoder)
    if recipe.objective.self_critical is None:
        return CaptioningLoss(decoder, recipe.objective, encoder)
    reward = caption_reward(references, vocabulary, recipe.objective.self_critical)
    return SelfCriticalLoss(decoder, recipe.objective, reward, encoder)


def use_word_vectors(
    recipe: CaptioningRecipe,
    decoder: CaptionDecoder,
    vocabulary: Vocabulary,
    resumed: bool = False,
) -> None:
    """Initialise the embeddings with the recipe's word vectors, if any; prints how many.

    resumed: the checkpoint has the embeddings, so they are only frozen and the file is not read.
    Raises `UserError` as `read_word_vectors` does.
    """
    if recipe.word_vectors is None:
        return
    embedding = decoder.embedding.weight.requires_grad_(not recipe.word_vectors.freeze)
    if resumed:
        return
    file, size = recipe.word_vectors.file, recipe.decoder.embedding_size
    indices, vectors = read_word_vectors(file, vocabulary, size)
    with torch.no_grad():
        embedding[indices.to(embedding.device)] = vectors.to(embedding)
    words, count = len(vocabulary) - len(SPECIAL_WORDS), len(indices)
    print(f"word vectors: {count:,} words found in {file}, {words - count:,} not found")


def caption_reward(
    references: Sequence[Sequence[Sequence[str]]],
    vocabulary: Vocabulary,
    config: SelfCriticalConfig,
) -> Reward:
    """CIDEr-D and, where it has a weight, word precision against the references of the photos."""
    cider = cider_reward(references, vocabulary)
    if config.word_precision_weight == 0:
        return cider
    precision = word_precision_reward(references, vocabulary)
    weight = config.word_precision_weight
    return lambda rows, captions: cider(rows, captions) + weight * precision(rows, captions)


def word_precision_reward(
    references: Sequence[Sequence[Sequence[str]]], vocabulary: Vocabulary
) -> Reward:
    """The share of a caption's content words that a reference has, 0 without content words.

    See `captioner.evaluation.word_precision`.
    """
    stem_of = [content_stems([word]) if word in vocabulary else [] for word in vocabulary.words]
    known = [
        {stem for words in captions for stem in content_stems(words)} for captions in references
    ]

    def share(row: int, caption: Sequence[int]) -> float:
        said = [stem in known[row] for token in caption for stem in stem_of[token]]
        return sum(said) / max(1, len(said))

    def reward(rows: Tensor, captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        pairs = zip(rows.tolist(), captions, strict=True)
        return torch.tensor([[share(row, each) for each in of_photo] for row, of_photo in pairs])

    return reward


def cider_reward(references: Sequence[Sequence[Sequence[str]]], vocabulary: Vocabulary) -> Reward:
    """CIDEr-D against the references of the photos, as a reward.

    The end counts as a word, so that it matters whether a caption was finished.
    references: words; those outside the vocabulary still count in a reference's length.
    """
    end = vocabulary.words[Vocabulary.end]
    texts = [[[*words, end] for words in captions] for captions in references]
    frequency = DocumentFrequency.from_references(texts)

    def reward(rows: Tensor, captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        every = [caption for of_photo in captions for caption in of_photo]
        said = [[vocabulary.words[token] for token in caption] for caption in every]
        truth = [texts[row] for row in rows.tolist() for _ in captions[0]]
        scores = cider_d(Corpus.of(said, truth), frequency).per_image  # (B * K,)
        return torch.from_numpy(scores).float().view(len(captions), -1)  # (B, K)

    return reward
