"""The cautious caption of a photo: it says most that is likely true, and nothing doubtful."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from captioner.caption.caption import Caption, sentence
from captioner.text.kinds import word_kinds

CanEnd = Callable[[Sequence[str]], bool]
"""Whether people end a caption with these words, its last ones."""


def cautious_caption(
    captions: Sequence[Caption], doubtful_below: float, can_end: CanEnd
) -> Caption:
    """The best of the captions of a photo and their shorter forms, by their word confidences.

    Of those without a doubtful word, the one of which most is expected to be true; if all have
    one, the one whose words are expected to be true in the largest share.
    """
    forms = [form for caption in captions for form in (caption, *shorter_forms(caption, can_end))]

    def rank(form: Caption) -> tuple[bool, float]:
        scores = _scores(form)
        is_sure = bool(scores) and min(scores) >= doubtful_below
        return is_sure, sum(scores) / (1 if is_sure else max(1, len(scores)))

    return max(forms, key=rank)


def shorter_forms(caption: Caption, can_end: CanEnd) -> Iterator[Caption]:
    """A caption's beginnings that are sentences: a noun or a verb ends them, as people end theirs.

    They have the score and the confidence of the whole caption, and the log-probability of their
    words.
    """
    kinds = word_kinds(caption.words)
    for length in range(2, len(caption.words)):
        words = caption.words[:length]
        is_end = kinds[length - 1] not in (None, "quality", "number")
        is_end &= kinds[length] in (None, "action")
        if is_end and can_end(words):
            terms = caption.word_log_probabilities[:length]
            yield replace(
                caption,
                text=sentence(words),
                words=words,
                log_probability=sum(terms),
                word_log_probabilities=terms,
                attention=caption.attention[:length],
                word_confidence=caption.word_confidence and caption.word_confidence[:length],
            )


def _scores(caption: Caption) -> list[float]:
    return [score for score in caption.word_confidence or () if score is not None]
