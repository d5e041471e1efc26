"""BLEU, ROUGE-L and CIDEr-D as COCO's evaluation computes them; its METEOR and SPICE.

Chen et al. 2015, *Microsoft COCO Captions: Data Collection and Evaluation Server*, section 3.
"""

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from captioner.errors import UserError, refuse_errors
from captioner.evaluation.corpus import MAXIMUM_ORDER, Corpus, FloatArray, IntArray, Metric, Tokens

# The COCO evaluation adds these to avoid dividing by zero and a BLEU of exactly 0.
_ADDED_ABOVE = 1e-15
_ADDED_BELOW = 1e-9
_BETA = 1.2  # ROUGE-L's weight of recall over precision.
_CHUNK = 4096  # References compared at once for ROUGE-L; their arrays fit in a processor's cache.
_SIGMA = 6.0  # Words; the width of CIDEr-D's Gaussian penalty on a difference in length.

_JAVA_OPTIONS = "-Dfile.encoding=UTF-8 -Duser.language=en -Duser.country=US"
"""Without these METEOR reads ASCII only, and hangs in locales with a decimal comma."""


def bleu(corpus: Corpus) -> Metric:
    """BLEU-1 to BLEU-4 of a corpus, fractions of one, brevity penalty included.

    Papineni et al. 2002, *BLEU: a Method for Automatic Evaluation of Machine Translation*.

    terms: (I, 10): by n-gram length the n-grams of the caption that a reference has, clipped, and
        its n-grams; then words of the caption and of its closest reference.
    details: the brevity penalty, 1 if the captions are longer; words of both, all together.
    """
    matches = [ngrams.matches for ngrams in corpus.ngrams]  # (I,) of each length
    lengths = corpus.lengths[corpus.firsts]  # (I,)
    number = np.maximum(0, lengths[:, None] - np.arange(MAXIMUM_ORDER))  # (I, 4)
    columns = (*matches, number, lengths, _closest_lengths(corpus))
    terms = np.column_stack(columns).astype(np.float64)  # (I, 10)
    totals = terms.sum(axis=0)
    details = {
        "brevity_penalty": float(_brevity_penalty(totals)),
        "hypothesis_length": int(totals[8]),
        "reference_length": int(totals[9]),
    }
    names = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
    return Metric(names, _bleu_of_totals(terms), terms, _bleu_of_totals, details)


def _bleu_of_totals(totals: FloatArray) -> FloatArray:
    """BLEU-1 to BLEU-4, (..., 4), of the sums (..., 10) of `bleu`'s terms over images."""
    precisions = (totals[..., :4] + _ADDED_ABOVE) / (totals[..., 4:8] + _ADDED_BELOW)  # (..., 4)
    means = np.cumprod(precisions, axis=-1) ** (1.0 / np.arange(1, MAXIMUM_ORDER + 1))
    return np.asarray(means * _brevity_penalty(totals)[..., None])


def _brevity_penalty(totals: FloatArray) -> FloatArray:
    ratio = (totals[..., 8] + _ADDED_ABOVE) / (totals[..., 9] + _ADDED_BELOW)  # (...)
    return np.asarray(np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0))


def _closest_lengths(corpus: Corpus) -> IntArray:
    """Of each image (I,) the reference length closest to the caption's, the shorter in a tie."""
    lengths = corpus.lengths.astype(np.int64)
    distance = np.abs(lengths - lengths[corpus.firsts][corpus.image_of])  # (S,)
    base = int(lengths.max()) + 1
    far = base * base  # excludes the caption itself
    rank = np.where(corpus.is_reference, distance * base + lengths, far)
    return np.minimum.reduceat(rank, corpus.firsts) % base


def rouge_l(corpus: Corpus) -> Metric:
    """ROUGE-L: an F-measure of the longest common subsequence, 0 to 1.

    Lin 2004, *ROUGE: A Package for Automatic Evaluation of Summaries*, section 3.1.

    The best precision and the best recall count, even of different references. An empty caption
    scores 1 against an empty reference and 0 against any other.
    """
    captions = corpus.firsts[corpus.image_of]  # (S,)
    lengths, caption_lengths = corpus.lengths, corpus.lengths[captions]  # (S,)
    common = np.zeros(len(lengths), dtype=np.int64)  # 0 for the captions themselves
    references = np.flatnonzero(corpus.is_reference)
    # Pairs of like lengths together.
    references = references[np.lexsort((lengths[references], caption_lengths[references]))]
    for first in range(0, len(references), _CHUNK):
        part = references[first : first + _CHUNK]
        common[part] = _common_lengths(_padded(corpus, captions[part]), _padded(corpus, part, -2))
    # The COCO evaluation reads an empty sentence as one empty word.
    common[(lengths == 0) & (caption_lengths == 0) & corpus.is_reference] = 1
    precision = np.maximum.reduceat(common / np.maximum(1, caption_lengths), corpus.firsts)  # (I,)
    recall = np.maximum.reduceat(common / np.maximum(1, lengths), corpus.firsts)
    below = recall + _BETA**2 * precision
    above = (1 + _BETA**2) * precision * recall
    return Metric.mean("ROUGE-L", np.divide(above, below, np.zeros_like(below), where=below > 0))


def _padded(corpus: Corpus, sentences: IntArray, padding: int = -1) -> IntArray:
    """The words (C, R) of R sentences, the longest of which has C."""
    lengths, starts = corpus.lengths[sentences], corpus.starts[sentences]  # (R,)
    place = np.arange(lengths.max(initial=0))[:, None]  # (C, 1)
    inside = place < lengths  # (C, R)
    return np.where(inside, corpus.words[np.where(inside, starts + place, 0)], padding)


def _common_lengths(captions: IntArray, references: IntArray) -> IntArray:
    """Words (R,) of the longest common subsequences of columns (C, R) and (N, R)."""
    row = np.zeros((len(captions) + 1, captions.shape[1]), dtype=np.int32)
    for word in references:  # A row of the table of dynamic programming.
        row[1:] = np.maximum(row[1:], row[:-1] + (captions == word))
        reach = 1
        while reach < len(row):  # The largest up to each place; faster than `maximum.accumulate`.
            row[reach:] = np.maximum(row[reach:], row[:-reach])
            reach *= 2
    return np.asarray(row[-1])


@dataclass(frozen=True)
class DocumentFrequency:
    """The number of images in whose references each n-gram of one to four words occurs.

    images: of the references; two or more, since with one every n-gram would weigh log(1) = 0.
    counts: by the n-gram's words, joined by a space; absent ones count as in one image.
    """

    images: int
    counts: Mapping[str, int]

    @classmethod
    def from_references(cls, references: Sequence[Sequence[Tokens]]) -> "DocumentFrequency":
        """Count over the tokenised references of each image.

        N-grams of one image, four of five, are left out: they count as such anyway.
        """
        if len(references) < 2:
            raise UserError(f"CIDEr-D's frequencies need at least 2 images, not {len(references)}")
        corpus = Corpus([()] * len(references), references)
        counts: dict[str, int] = {}
        for ngrams in corpus.ngrams:
            pairs = zip(ngrams.texts(corpus), ngrams.images.tolist(), strict=True)
            counts.update((ngram, count) for ngram, count in pairs if count > 1)
        return cls(len(references), counts)


def cider_d(corpus: Corpus, document_frequency: DocumentFrequency | None = None) -> Metric:
    """CIDEr-D of a corpus, from 0 to 10 as in COCO's evaluation: 1.0 is 100 in papers.

    Vedantam, Zitnick and Parikh 2015, *CIDEr: Consensus-based Image Description Evaluation*,
    section 8. The COCO evaluation calls it "CIDEr", but clips counts and penalises length.

    document_frequency: by default counted over these references, as the COCO evaluation does.
    """
    if document_frequency is None and corpus.images == 1:
        advice = "give captioner score --document-frequency FILE, or other --metrics"
        raise UserError(f"CIDEr-D of a single image needs the frequency of more captions: {advice}")
    sentences = len(corpus.lengths)
    captions = corpus.firsts[corpus.image_of]  # (S,)
    similarity = np.zeros(sentences)  # of each reference to its image's caption
    for ngrams in corpus.ngrams:
        if document_frequency is None:
            frequency, images = ngrams.images, corpus.images
        else:
            known, images = document_frequency.counts, document_frequency.images
            frequency = np.array([known.get(ngram, 1) for ngram in ngrams.texts(corpus)], int)
        rarity = np.log(images / np.maximum(1, frequency))  # (G,), 0 if in every image
        # Equation 4 without its Gaussian: the cosine of the two vectors of counts times rarity,
        # where the caption's entries are cut to the reference's. 0 for captions.
        rare = rarity[ngrams.ngram]  # (E,)
        weight = ngrams.number * rare
        norm = np.sqrt(np.bincount(ngrams.sentence, weight**2, sentences))  # (S,)
        product = np.minimum(ngrams.in_caption * rare, weight) * weight
        dot = np.bincount(ngrams.sentence, product, sentences) * corpus.is_reference
        norms = norm[captions] * norm
        similarity += np.divide(dot, norms, out=np.zeros(sentences), where=norms > 0)

    # The COCO evaluation measures a caption by its number of bigrams.
    bigrams = np.maximum(0, corpus.lengths - 1)
    difference = (bigrams - bigrams[captions]).astype(np.float64)  # (S,)
    similarity *= np.exp(-(difference**2) / (2 * _SIGMA**2)) / MAXIMUM_ORDER
    sums = np.bincount(corpus.image_of, similarity, corpus.images)  # (I,)
    return Metric.mean("CIDEr-D", 10.0 * sums / (np.bincount(corpus.image_of) - 1))


def check_java_metric(metric: str) -> None:
    """Refuse METEOR or SPICE where its package, Java or its models (400 MB) are missing."""
    package = importlib.util.find_spec("pycocoevalcap")
    if shutil.which("java") is None or package is None or not package.submodule_search_locations:
        extra = 'the package pycocoevalcap (pip install "captioner[java]")'
        raise UserError(f"{metric} needs {extra} and the program java")
    library = Path(package.submodule_search_locations[0], "spice", "lib")
    models = library / "stanford-corenlp-3.6.0-models.jar"
    if metric == "SPICE" and not os.path.isfile(models):
        command = '"python -m pycocoevalcap.spice.get_stanford_models"'
        raise UserError(f"SPICE needs {models}; {command} downloads it (400 MB)")


def meteor(corpus: Corpus) -> Metric:
    """METEOR 1.5, English: the program's own sum, which cannot be resampled.

    Denkowski and Lavie 2014, *Meteor Universal*.
    """
    from pycocoevalcap.meteor.meteor import Meteor

    options = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = _JAVA_OPTIONS
    try:
        scorer = Meteor()  # Starts the program.
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
        if options is not None:
            os.environ["JAVA_TOOL_OPTIONS"] = options
    try:
        score, per_image = _score("METEOR", scorer, corpus)
    finally:
        for stream in (scorer.meteor_p.stdin, scorer.meteor_p.stdout, scorer.meteor_p.stderr):
            with contextlib.suppress(OSError):
                stream.close()
        if scorer.lock.locked():  # After an error; its destructor would wait for it for ever.
            scorer.lock.release()
    no_terms = np.empty((corpus.images, 0))
    return Metric(("METEOR",), np.array(per_image), no_terms, lambda totals: np.array([score]))


def spice(corpus: Corpus) -> Metric:
    """SPICE: the mean F-measure of scene graphs (Anderson et al. 2016)."""
    from pycocoevalcap.spice.spice import Spice

    _, per_image = _score("SPICE", Spice(), corpus)
    return Metric.mean("SPICE", np.array([scores["All"]["f"] for scores in per_image]))


def _score(metric: str, scorer: Any, corpus: Corpus) -> tuple[float, list[Any]]:
    """The score and the scores (I,) by a class of the package, of our tokeniser's words."""

    def line(words: Tokens) -> str:  # METEOR separates captions by |||, and reads lines.
        return " ".join(" ".join(words).replace("|||", " ").split())

    captions = {image: [line(words)] for image, words in enumerate(corpus.captions)}
    truth = {image: [*map(line, texts)] for image, texts in enumerate(corpus.references)}
    with refuse_errors(f"{metric}'s Java program failed"):
        score, per_image = scorer.compute_score(truth, captions)
    return float(score), list(per_image)
