"""The corpus that every caption metric scores: tokenised captions with their references."""

from __future__ import annotations

from collections.abc import Sequence

from captioner.errors import UserError

Tokens = Sequence[str]
"""One tokenised caption: its words in order."""


def check_corpus(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> None:
    """Refuse what cannot be scored.

    hypotheses: one tokenised caption an image; it may be empty.
    references: for each image, in the same order, one or more tokenised captions.

    Raises `UserError` when there are no images, when the two differ in length, when an image has
    no reference, or when a caption is a string instead of a list of words.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"there are {len(hypotheses)} captions to score but references for "
            f"{len(references)} images"
        )
    if len(hypotheses) == 0:
        raise UserError("there are no captions to score")
    for index, (hypothesis, candidates) in enumerate(zip(hypotheses, references, strict=True)):
        if isinstance(candidates, str) or len(candidates) == 0:
            raise UserError(f"image number {index} has no list of reference captions")
        if isinstance(hypothesis, str) or any(isinstance(tokens, str) for tokens in candidates):
            raise UserError(
                f"a caption of image number {index} is a string, not a list of words: "
                "tokenise it first"
            )
