"""Scoring captions: strings in, every metric out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from captioner.errors import UserError
from captioner.evaluation.bleu import BleuScores, bleu
from captioner.evaluation.cider import CiderScores, DocumentFrequency, cider_d
from captioner.evaluation.rouge import RougeScores, rouge_l
from captioner.text.tokenizer import tokenize

Image = TypeVar("Image", bound=Hashable)


@dataclass(frozen=True)
class CaptionScores:
    """The scores of I captions against their references; `images` is I.

    Each holds the score of the corpus and, as `per_image`, that of every image in the order given.
    """

    bleu: BleuScores
    rouge_l: RougeScores
    cider_d: CiderScores
    images: int

    def as_dict(self) -> dict[str, float]:
        """By name: `BLEU-1` to `BLEU-4`, `ROUGE-L` (fractions of one), `CIDEr-D` (0 to 10).

        Also `brevity_penalty`, `hypothesis_length` and `reference_length` (words), `images`.
        """
        scores = {f"BLEU-{order}": score for order, score in enumerate(self.bleu.scores, start=1)}
        return {
            **scores,
            "ROUGE-L": self.rouge_l.score,
            "CIDEr-D": self.cider_d.score,
            "brevity_penalty": self.bleu.brevity_penalty,
            "hypothesis_length": self.bleu.hypothesis_length,
            "reference_length": self.bleu.reference_length,
            "images": self.images,
        }

    def table(self) -> str:
        """The scores as lines of text, one a metric."""
        values = self.as_dict()
        metrics = [name for name in values if "-" in name]
        lines = [f"{name:<16}{values[name]:.4f}" for name in metrics]
        lines.append(f"{'brevity penalty':<16}{self.bleu.brevity_penalty:.4f}")
        lines.append(
            f"{'words':<16}{self.bleu.hypothesis_length:,} "
            f"(closest references: {self.bleu.reference_length:,})"
        )
        lines.append(f"{'images':<16}{self.images:,}")
        return "\n".join(lines)


def evaluate_captions(
    hypotheses: Mapping[Image, str] | Sequence[str],
    references: Mapping[Image, Sequence[str]] | Sequence[Sequence[str]],
    tokenizer: Callable[[str], list[str]] = tokenize,
    document_frequency: DocumentFrequency | None = None,
) -> CaptionScores:
    """Score one caption an image against the image's references.

    hypotheses, references: both by image (the same images in both), or both sequences in the same
        order of images. A caption may be empty; an image has at least one reference.
    tokenizer: turns a caption, of either side, into words.
    document_frequency: of CIDEr-D; counted over these references if not given.

    Raises `UserError`, naming the image, for one that is on one side only or has no reference, and
    as `cider_d` does for a single image.
    """
    names, texts, candidates = _aligned(hypotheses, references)
    for name, text, of_image in zip(names, texts, candidates, strict=True):
        if isinstance(of_image, str) or len(of_image) == 0:
            raise UserError(f"image {name!r} has no list of reference captions")
        if not all(isinstance(caption, str) for caption in (text, *of_image)):
            raise UserError(f"a caption of image {name!r} is not a string")
    words = [tokenizer(text) for text in texts]
    reference_words = [[tokenizer(caption) for caption in of_image] for of_image in candidates]
    return CaptionScores(
        bleu=bleu(words, reference_words),
        rouge_l=rouge_l(words, reference_words),
        cider_d=cider_d(words, reference_words, document_frequency),
        images=len(words),
    )


def _aligned(
    hypotheses: Mapping[Image, str] | Sequence[str],
    references: Mapping[Image, Sequence[str]] | Sequence[Sequence[str]],
) -> tuple[list[Hashable], list[str], list[Sequence[str]]]:
    """The names of the images, their captions and their references, in one order."""
    if isinstance(hypotheses, Mapping) and isinstance(references, Mapping):
        for image in hypotheses:
            if image not in references:
                raise UserError(f"image {image!r} has a caption but no references")
        for image in references:
            if image not in hypotheses:
                raise UserError(f"image {image!r} has references but no caption")
        return (
            list(hypotheses),
            list(hypotheses.values()),
            [references[image] for image in hypotheses],
        )
    if isinstance(hypotheses, Mapping) or isinstance(references, Mapping):
        raise UserError("captions and references are not both by image or both in order")
    if len(hypotheses) != len(references):
        raise UserError(
            f"there are {len(hypotheses)} captions but references for {len(references)} images"
        )
    return list(range(len(hypotheses))), list(hypotheses), list(references)
