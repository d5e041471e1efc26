"""CHAIR: how often captions name things that are not in the photo.

Rohrbach et al. 2018, *Object Hallucination in Image Captioning*, section 2.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from captioner.data.synonyms import Synonyms
from captioner.evaluation.corpus import Tokens

_SHOWN = 10  # hallucinated categories in the table


@dataclass(frozen=True)
class Hallucination:
    """The things that I captions name and that are in the photos.

    present: (I,) the categories in each image. mentioned: (I,) those that its caption names.
    categories: the ones that count, in both the word list and the annotations.
    dropped: categories of the word list that the annotations lack, in its order.
    """

    present: tuple[frozenset[str], ...]
    mentioned: tuple[frozenset[str], ...]
    categories: frozenset[str]
    dropped: tuple[str, ...] = ()

    @property
    def hallucinated(self) -> tuple[frozenset[str], ...]:
        """(I,) the categories that each caption names and that are not in the image."""
        return tuple(
            named - there for named, there in zip(self.mentioned, self.present, strict=True)
        )

    @property
    def chair_i(self) -> float | None:
        """CHAIR_i, equation 1: the share of named things that are not there.

        A thing counts once a caption. None if no caption names a thing.
        """
        return _share(_total(self.hallucinated), _total(self.mentioned))

    @property
    def chair_s(self) -> float:
        """CHAIR_s, equation 2: the share of captions that name a thing that is not there."""
        return sum(map(bool, self.hallucinated)) / len(self.mentioned)

    @property
    def recall(self) -> float | None:
        """The share of the things in the photos that captions name; None without things.

        Captions that name little have a low CHAIR and a low recall.
        """
        found = _total(self.mentioned) - _total(self.hallucinated)
        return _share(found, _total(self.present))

    def most_hallucinated(self) -> dict[str, int]:
        """The number of captions that hallucinate each category, the most frequent first."""
        names = sorted(name for names in self.hallucinated for name in names)
        return dict(Counter(names).most_common())

    def as_dict(self) -> dict[str, float | dict[str, int] | list[str] | None]:
        """The figures by name: fractions of one, None where undefined, and their counts."""
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
    known: frozenset[str],
) -> Hallucination:
    """Compare the things that tokenised captions name with those in their photos.

    captions: one an image. references: one or more captions an image, in the same order.
    categories: the annotated categories of each image, in the same order; in the image are these
        and those that its references name.
    synonyms: the words for each category.
    known: the categories that count, as `CocoInstances.known_categories`: one that could not be
        annotated would always count as hallucinated, and one without words is never named.
    """

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
