"""BLEU against the length of the source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from captioner.errors import UserError
from captioner.evaluation.translations import sacrebleu_metrics


@dataclass(frozen=True)
class LengthBucket:
    """The sentences whose sources have `first` to `last` words.

    sentences: their number. bleu: of them as a corpus, 0 to 100; noisy for few sentences.
    brevity_penalty: 0 to 1, part of BLEU.
    """

    first: int
    last: int
    sentences: int
    bleu: float
    brevity_penalty: float


def bleu_by_length(
    translations: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    width: int = 5,
    lower_case: bool = False,
) -> list[LengthBucket]:
    """BLEU by length of the source, for each bucket that has sentences.

    As in Bahdanau et al. 2014, figure 2, and Luong et al. 2015, figure 6. A source's length counts
    words between white space, whatever the model's tokens.
    width: lengths in a bucket; the first holds 0 to `width`.
    Raises `UserError` for a width below 1 and without sacrebleu.
    """
    if width < 1:
        raise UserError(f"width {width} of buckets of lengths is not at least 1")
    places: dict[int, list[int]] = defaultdict(list)
    for place, source in enumerate(sources):
        places[max(0, len(source.split()) - 1) // width].append(place)
    bleu = sacrebleu_metrics().BLEU(lowercase=lower_case)
    found = []
    for number, own in sorted(places.items()):
        score = bleu.corpus_score(
            [translations[place] for place in own], [[references[place] for place in own]]
        )
        first, last = number * width + 1, (number + 1) * width
        found.append(LengthBucket(first, last, len(own), float(score.score), float(score.bp)))
    return found
