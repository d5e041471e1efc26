"""The captioning task: reads photos and captions, makes the captioner and its batches."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.caption.captioner import Captioner
from captioner.caption.folder import load_model, make_decoder, save_model
from captioner.caption.losses import CaptioningLoss, SelfCriticalConfig
from captioner.caption.lstm import ShowAttendTellDecoder
from captioner.caption.reinforce import HardAttentionLoss, Reward, SelfCriticalLoss
from captioner.data.example import Example
from captioner.data.instances import CocoInstances, read_synonyms
from captioner.data.parallel import read_lines
from captioner.decoding.constraints import ngram_keys, ngrams_of_keys
from captioner.decoding.options import ORDER
from captioner.errors import UserError, counted
from captioner.evaluation import CONFIDENCE
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.results_file import read_results, write_results
from captioner.evaluation.score import evaluate_captions
from captioner.evaluation.significance import FEW_IMAGES, compare
from captioner.evaluation.word_precision import content_stems
from captioner.files import write_json
from captioner.model_folders import MODEL, SCORES_FILE, model_folder
from captioner.outcomes import loading_workers
from captioner.runs.batches import CaptionBatches, cut
from captioner.runs.captioning_recipe import SCORES, CaptioningRecipe
from captioner.runs.features import PixelRows, StoredRows, encoder_of, feature_stores, read_training
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.training.distributed import Engine
from captioner.vision.encoders import RANDOM
from captioner.weight_files import fill, make_trainable

WORDS, RESULTS, START_RESULTS = "vocabulary.json", "results.json", "start_results.json"
"""In a run's folder: its words, and captions of the validation photos in COCO's format, by the best
model and by the one that the run starts from."""

STANDARDISED_BY = 256
"""Photos for the mean and deviation of the annotation vectors."""

LEAST_KNOWN = 1 / 3
"""Captions are in another language if a model knows a smaller share of their words than this. The
packaged model knows 93 to 95 % of the words of English captions (COCO, Multi30k), and 5 to 8 % of
French and German ones."""

Worth = Callable[[int, Sequence[int]], float]
"""The worth of a caption, as word indices, of the photo of a row."""


class CaptionTask:
    """Trains a captioner; see `captioner.runs.run.Task`."""

    def __init__(self, recipe: CaptioningRecipe, folder: Path, resumed: bool) -> None:
        """Read photos, captions and boxes, and make the captioner with its first weights."""
        self.recipe, self.data = recipe, list[str]()
        self.train, validation, problems = read_training(recipe.data)
        self.validation = validation[: recipe.validation.images or None]
        captions = list(chain.from_iterable(each.words for each in self.train))
        start = None
        if resumed:
            vocabulary = Vocabulary.load(folder / WORDS)
            ordinary = Vocabulary.build(captions, recipe.minimum_count).words[len(SPECIAL_WORDS) :]
            if new := [word for word in ordinary if word not in vocabulary]:
                some = f"{counted(len(new), 'word')} of the captions, {new[0]!r} the first, came"
                advice = "--start-from with another --out learns them"
                print(f"{some} after the run began, and its vocabulary lacks them; {advice}")
        elif recipe.start_from is not None:
            start = load_model(model_folder(recipe.start_from))
            vocabulary = first_words(start.vocabulary, captions, recipe.minimum_count)
        else:
            vocabulary = Vocabulary.build(captions, recipe.minimum_count)
        for name, split in (("training", self.train), ("validation", self.validation)):
            count = counted(sum(len(each.captions) for each in split), "caption")
            self.data.append(f"{name}: {counted(len(split), 'photo')}, {count}")
        self.data += [*problems, _origin_of(vocabulary, start, str(recipe.start_from))]
        longest = recipe.data.maximum_length
        if too_long := sum(len(words) > longest for words in captions):
            self.data.append(f"{counted(too_long, 'caption')} cut to {longest} words")
        torch.manual_seed(recipe.training.seed)
        encoder = encoder_of(recipe)
        if recipe.encoder.weights != RANDOM:
            digest = encoder.digest()
            self.data.append(f"encoder: {recipe.encoder.name}, weights of digest {digest}")
        print("\n".join(self.data))
        make = partial(make_decoder, recipe.decoder, len(vocabulary))
        decoder = make_trainable(make, "this decoder")
        self.captioner = Captioner(
            encoder, decoder, vocabulary, recipe.preprocessing, recipe.search
        )
        if start is not None:
            copy_weights(start, self.captioner, recipe.encoder.train)
            self.captioner.ngrams = known_ngrams(start, vocabulary, captions)
        elif recipe.start_from is not None:  # Its model was scored, and kept, before training.
            self.captioner.ngrams = load_model(folder / MODEL).ngrams
        self.loss = self._make_loss()
        self.instances = None
        if recipe.data.instances is not None:
            self.instances = CocoInstances([recipe.data.instances])
            self.instances.known_categories(read_synonyms())

    def _make_loss(self) -> CaptioningLoss:
        """The recipe's loss; the first stages of a trained encoder are frozen."""
        recipe, decoder, encoder = self.recipe, self.captioner.decoder, None
        objective, words = recipe.objective, self.captioner.vocabulary
        if recipe.encoder.train:
            encoder = self.captioner.encoder
            # Batch normalisation that was trained stays as it is.
            encoder.freeze(recipe.encoder.train_from - 1, recipe.encoder.weights != RANDOM)
        if isinstance(decoder, ShowAttendTellDecoder) and recipe.decoder.selection == "hard":
            return HardAttentionLoss(decoder, objective, encoder)
        if objective.self_critical is None:
            return CaptioningLoss(decoder, objective, encoder)
        texts = [] if recipe.data.texts is None else map(tokenize, read_lines(recipe.data.texts))
        references = [each.words for each in self.train]
        reward = caption_reward(references, words, objective.self_critical, texts)
        return SelfCriticalLoss(decoder, objective, reward, encoder)

    def prepare(self, folder: Path, engine: Engine, resumed: bool) -> None:
        """Compute annotation vectors and make the batches.

        Drops photos that could not be read; with photos in the step all are taken, and an
        unreadable one ends the run.
        """
        recipe, captioner = self.recipe, self.captioner.to(engine.device)
        self.loss.to(engine.device)
        if engine.is_main:
            captioner.vocabulary.save(folder / WORDS)
        workers = loading_workers(engine.device, engine.local_world_size)
        splits = {"train": self.train, "validation": self.validation}
        photos, self.order = (list(range(len(examples))) for examples in splits.values())
        train_rows: StoredRows | PixelRows
        if recipe.photos_in_step:
            precision = "float32" if recipe.encoder.train else recipe.features.precision
            read_by = recipe.preprocessing, captioner.encoder, recipe.augmentation, precision
            train_rows = PixelRows(self.train, *read_by, workers)
            self.rows: StoredRows | PixelRows = PixelRows(self.validation, *read_by, workers)
        else:
            stores = feature_stores(recipe, captioner.encoder, splits, engine, folder)
            train, validation = stores["train"], stores["validation"]
            photos = [row for row in photos if row not in train.unreadable]
            self.order = [row for row in self.order if row not in validation.unreadable]
            self.validation = [self.validation[row] for row in self.order]
            workers = min(2, workers)  # Stored rows need no more.
            dtype = torch.float16 if engine.device.type == "cuda" else torch.float32
            train_rows = StoredRows(train, dtype, workers)
            self.rows = StoredRows(validation, workers=workers)
        standardisation = captioner.decoder.standardisation
        with engine.fail_together(), torch.no_grad():
            if not photos or len(self.validation) < 2:
                raise UserError(
                    f"{counted(len(photos), 'photo')} to train on and {len(self.validation)} to "
                    "validate on are too few: CIDEr-D needs two"
                )
            if recipe.start_from is None and not resumed and standardisation is not None:
                count = min(len(photos), STANDARDISED_BY)
                few = [photos[place * len(photos) // count] for place in range(count)]
                # Workers would wait for another such call until the run ends.
                standardisation.fit(replace(train_rows, workers=0).annotations(cut(few, 32)))
        what = self.train, photos, captioner.vocabulary, train_rows, recipe
        self.batches = CaptionBatches(*what, self.instances, captioner.map_shape)

    @property
    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups of the optimiser: the decoder and, if trained, the encoder."""
        settings = self.recipe.training
        rates = settings.learning_rate, settings.encoder_learning_rate or settings.learning_rate
        parts = zip((self.loss.decoder, self.loss.encoder), rates, strict=True)
        given = [(part, rate) for part, rate in parts if part is not None]
        return [{"params": part.parameters(), "lr": rate} for part, rate in given]

    def generate(self, batches: Sequence[Sequence[int]]) -> Iterator[str]:
        """Captions of batches of validation photos."""
        for captions in map(self.captioner.caption_annotations, self.rows.annotations(batches)):
            yield from (caption.text for caption in captions)

    def score(self, captions: list[str]) -> dict[str, float]:
        """Scores of the validation captions."""
        return scores_of(captions, self.validation)

    def save(self, folder: Path, captions: list[str], scores: dict[str, float], epoch: int) -> None:
        """Save the captioner with its scores, and the captions in COCO's result format."""
        save_model(self.captioner, folder / MODEL)
        write_json(folder / MODEL / SCORES_FILE, scores)
        names = [each.image_id for each in self.validation]
        for file in (RESULTS, START_RESULTS) if epoch == 0 else (RESULTS,):
            write_results(folder / file, dict(zip(names, captions, strict=True)))


def doubt_of_gain(folder: Path, validation: Sequence[Example], score: str) -> str:
    """A sentence if chance explains what a run's best epoch gained over its start; else ""."""
    if not os.path.exists(folder / START_RESULTS):
        return ""
    references = [each.captions for each in validation]
    before, after = (
        evaluate_captions([said[each.name] for each in validation], references)
        for said in (read_results(folder / name) for name in (START_RESULTS, RESULTS))
    )
    found = compare(after.metrics, before.metrics)
    name = score if score in found else "CIDEr-D"
    gain, words = found[name], found["word-precision"]
    is_few = len(references) < FEW_IMAGES
    if gain.difference > 0 and gain.p_bootstrap < 1 - CONFIDENCE and not is_few:
        return ""
    evidence = "too few photos for a test" if is_few else f"p {gain.p_bootstrap:.2f}"
    return (
        f"nothing was gained that {counted(len(references), 'validation photo')} can show: "
        f"{name} {gain.second:.3f} at the start and {gain.first:.3f} now ({evidence}), "
        f"true words {words.second:.3f} and {words.first:.3f}"
    )


def scores_of(captions: Sequence[str], examples: Sequence[Example]) -> dict[str, float]:
    """Scores of one caption a photo against the photos' own, by name; see `SCORES`.

    `exact match` is the share of captions that equal one of their references word for word.
    """
    metrics = evaluate_captions(list(captions), [each.captions for each in examples]).to_dict()
    scores = {name: metrics[name] for name in (*SCORES[:-1], "brevity_penalty")}
    # As the words stand, and as the text reads: "a man 's hat" and "a man's hat".
    exact = [
        caption.split() in example.words or tokenize(caption) in example.words
        for caption, example in zip(captions, examples, strict=True)
    ]
    scores["exact match"] = sum(exact) / len(exact)
    return scores


def first_words(
    start: Vocabulary, captions: Sequence[Sequence[str]], minimum_count: int
) -> Vocabulary:
    """The words of a model, and new ones of captions; of another language, theirs alone."""
    is_known = [word in start for word in chain(*captions)]
    if sum(is_known) < LEAST_KNOWN * len(is_known):
        return Vocabulary.build(captions, minimum_count)
    return start.extended(captions, minimum_count)


def _origin_of(vocabulary: Vocabulary, start: Captioner | None, name: str) -> str:
    """A sentence on the words: those of `start`, which `name` gives, and new ones."""
    if start is None:
        return f"vocabulary: {len(vocabulary):,} words"
    if not vocabulary.extends(start.vocabulary):
        return (
            f"vocabulary: {len(vocabulary):,} words of the captions alone: {name} knows less than "
            "a third of what they say, so that another language is learned, better from a "
            "thousand captions or more"
        )
    known = len(start.vocabulary)
    new = vocabulary.words[known:]
    listed = ", ".join(new[:8]) + ", ..." * (len(new) > 8)
    return f"vocabulary: {known:,} words of {name}" + f" and {len(new):,} new: {listed}" * bool(new)


def known_ngrams(
    start: Captioner, vocabulary: Vocabulary, captions: Sequence[Sequence[str]]
) -> Tensor | None:
    """The n-grams of a model to start from, and of training captions: keys (N,), sorted, or None.

    Words that a training caption has together do not clash. vocabulary: from `first_words`; of
    another language, the n-grams are those of the captions alone.
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


def caption_reward(
    references: Sequence[Sequence[Sequence[str]]],
    vocabulary: Vocabulary,
    config: SelfCriticalConfig,
    texts: Iterable[Sequence[str]] = (),
) -> Reward:
    """CIDEr-D, and true content words and fluency where they have a weight.

    The end counts as a word of CIDEr-D, so that it matters whether a caption was finished.
    references: tokenised, of each photo, also words outside the vocabulary. texts: tokenised
    captions without photos.
    """
    end = vocabulary.words[Vocabulary.end]
    truth = [[[*words, end] for words in captions] for captions in references]
    frequency = DocumentFrequency.from_references(truth)
    weighed: list[tuple[float, Worth]] = []
    if (weight := config.content_words_weight) > 0:
        weighed.append((weight, content_words_worth(references, vocabulary)))
    if (weight := config.fluency_weight) > 0:
        people = PeoplesNgrams([*chain.from_iterable(references), *texts])
        weighed.append((weight, fluency_worth(people, vocabulary)))

    def reward(rows: Tensor, captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        photos = zip(rows.tolist(), captions, strict=True)
        pairs = [(row, caption) for row, of_photo in photos for caption in of_photo]
        said = [[vocabulary.words[token] for token in caption] for _, caption in pairs]
        corpus = Corpus(said, [truth[row] for row, _ in pairs])
        rewards = torch.from_numpy(cider_d(corpus, frequency).per_image).float()  # (B * K,)
        for weight, worth in weighed:
            rewards += weight * torch.tensor([worth(row, caption) for row, caption in pairs])
        return rewards.view(len(captions), -1)  # (B, K)

    return reward


def content_words_worth(
    references: Sequence[Sequence[Sequence[str]]], vocabulary: Vocabulary
) -> Worth:
    """The content stems of a caption that a reference has, less those that none has."""
    stem_of = [content_stems([word]) if word in vocabulary else [] for word in vocabulary.words]
    known = [{s for words in captions for s in content_stems(words)} for captions in references]

    def worth(row: int, caption: Sequence[int]) -> float:
        said = {stem for token in caption for stem in stem_of[token]}
        return 2.0 * len(said & known[row]) - len(said)

    return worth


def fluency_worth(people: PeoplesNgrams, vocabulary: Vocabulary) -> Worth:
    """Minus the share of a caption's bigrams and trigrams that nobody wrote.

    An article before a plural or a mass noun counts as two of them.
    """

    def worth(row: int, caption: Sequence[int]) -> float:
        words = [vocabulary.words[token] for token in caption if token != Vocabulary.end]
        wrong = len(people.unseen(words)) + 2 * len(people.misplaced_articles(words))
        return -wrong / (2 * len(words) + 1)

    return worth
