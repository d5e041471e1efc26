"""Object hallucination: how often captions name things that are not in the photo (CHAIR).

Rohrbach et al. 2018, *Object Hallucination in Image Captioning*, section 2.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from captioner.data.synonyms import Synonyms
from captioner.errors import UserError
from captioner.evaluation.corpus import check_corpus
from captioner.evaluation.ngrams import Tokens

_SHOWN = 10  # hallucinated categories in the table


@dataclass(frozen=True)
class Hallucination:
    """Which things I captions name, and which of these are in the photos.

    present: of each image the categories that are there. mentioned: of each image those that its
        caption names. Both (I,), in the order in which the captions were given.
    categories: those that the word list and the annotations both have; no other counts.
    dropped: categories of the word list that the annotations do not have, in its order.
    """

    present: tuple[frozenset[str], ...]
    mentioned: tuple[frozenset[str], ...]
    categories: frozenset[str]
    dropped: tuple[str, ...] = ()

    @property
    def hallucinated(self) -> tuple[frozenset[str], ...]:
        """(I,) of each image the categories that its caption names and that are not there."""
        return tuple(
            named - there for named, there in zip(self.mentioned, self.present, strict=True)
        )

    @property
    def chair_i(self) -> float | None:
        """CHAIR_i, equation 1: the share of the things named that are not there.

        A thing counts once a caption, however often the caption names it. None where no caption
        names anything.
        """
        return _share(_total(self.hallucinated), _total(self.mentioned))

    @property
    def chair_s(self) -> float:
        """CHAIR_s, equation 2: the share of captions that name something that is not there."""
        return sum(map(bool, self.hallucinated)) / len(self.mentioned)

    @property
    def recall(self) -> float | None:
        """The share of the things in the photos that captions name; None where there are none.

        Saying little keeps CHAIR low; this is what it costs.
        """
        found = _total(self.mentioned) - _total(self.hallucinated)
        return _share(found, _total(self.present))

    def most_hallucinated(self) -> dict[str, int]:
        """In how many captions each category is hallucinated, the most frequent first."""
        counts = Counter(name for names in self.hallucinated for name in names)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def as_dict(self) -> dict[str, float | dict[str, int] | list[str] | None]:
        """By name: `CHAIR-i`, `CHAIR-s`, `recall` (fractions of one, None where undefined).

        Also the counts they come from: `mentions`, `hallucinated_mentions`, `present` (things),
        `hallucinating_captions`, `captions`; `most_hallucinated`, captions by category;
        `categories`, how many there are; and `dropped_categories`, by name.
        """
        return {
            "CHAIR-i": self.chair_i,
            "CHAIR-s": self.chair_s,
            "recall": self.recall,
            "mentions": _total(self.mentioned),
            "hallucinated_mentions": _total(self.hallucinated),
            "present": _total(self.present),
            "hallucinating_captions": sum(map(bool, self.hallucinated)),
            "captions": len(self.mentioned),
            "most_hallucinated": self.most_hallucinated(),
            "categories": len(self.categories),
            "dropped_categories": list(self.dropped),
        }

    def table(self) -> str:
        """The figures as lines of text, then the most hallucinated categories."""
        mentions, present = _total(self.mentioned), _total(self.present)
        hallucinated = _total(self.hallucinated)
        captions, wrong = len(self.mentioned), sum(map(bool, self.hallucinated))
        lines = [
            f"{'CHAIR-i':<16}{_show(self.chair_i)} ({hallucinated:,} of {mentions:,} mentions)",
            f"{'CHAIR-s':<16}{_show(self.chair_s)} ({wrong:,} of {captions:,} captions)",
            f"{'recall':<16}{_show(self.recall)} "
            f"({mentions - hallucinated:,} of {present:,} things present)",
        ]
        worst = list(self.most_hallucinated().items())[:_SHOWN]
        if worst:
            told = ", ".join(f"{category} {count:,}" for category, count in worst)
            lines.append(f"{'hallucinated':<16}{told}")
        if self.dropped:
            whole = len(self.categories) + len(self.dropped)
            lines.append(
                f"{'categories':<16}{len(self.categories):,} of the word list's {whole:,}; the "
                f"annotations do not have the other {len(self.dropped):,}, so they do not count"
            )
        return "\n".join(lines)


def chair(
    captions: Sequence[Tokens],
    references: Sequence[Sequence[Tokens]],
    categories: Sequence[Collection[str]],
    synonyms: Synonyms,
    all_categories: Collection[str],
) -> Hallucination:
    """Compare what tokenised captions name with what is in their photos.

    captions: one an image. references: one or more captions an image, in the same order.
    categories: of each image, in the same order, the annotated categories, as
        `CocoInstances.categories` gives them. What is there is these, united with what the
        references name.
    synonyms: which words name which category.
    all_categories: every category that could have been annotated, in these images or others, as
        `CocoInstances.all_categories`. Categories that not both this and `synonyms` have are left
        out, of captions, references and annotations: one that is never annotated would count as
        hallucinated wherever it is, and one without words can never be named.

    Raises `UserError` as `check_corpus` does, when `categories` are not as many as the captions
    or one is a string or has what is not in `all_categories`, and when `synonyms` has none of
    `all_categories`.
    """
    check_corpus(captions, references)
    if len(categories) != len(captions):
        raise UserError(
            f"there are {len(captions)} captions to score but categories of "
            f"{len(categories)} images"
        )
    possible = frozenset(all_categories)
    for index, annotated in enumerate(categories):
        if isinstance(annotated, str):
            raise UserError(f"the categories of image number {index} are a string, not a list")
        for name in annotated:
            if name not in possible:
                raise UserError(
                    f"category {name!r} of image number {index} is not among all categories"
                )
    known = frozenset(synonyms.categories) & possible
    if not known:
        raise UserError("the word list has none of the categories that are annotated")

    def named(words: Tokens) -> frozenset[str]:
        return known & {mention.category for mention in synonyms.mentions(words)}

    return Hallucination(
        present=tuple(
            (known & frozenset(annotated)).union(*map(named, of_image))
            for annotated, of_image in zip(categories, references, strict=True)
        ),
        mentioned=tuple(map(named, captions)),
        categories=known,
        dropped=tuple(name for name in synonyms.categories if name not in known),
    )


def _total(categories: Sequence[frozenset[str]]) -> int:
    return sum(map(len, categories))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _show(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.4f}"
