"""The translator a user holds: sentences in, translations with alignments out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from captioner.decoding import (
    CoveragePenalty,
    Hypothesis,
    LengthNormalisation,
    TranslationSearch,
    decode,
)
from captioner.errors import UserError
from captioner.field_checks import check_choice
from captioner.text.capitals import CAPITALS, as_sentence
from captioner.text.text_vocabulary import TextVocabulary, Word, truncate
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.translate.model import TranslationModel
from captioner.translate.model_config import TranslationModelConfig
from captioner.translate.transformer import Transformer
from captioner.translate.translation import Translation

MEAN: Literal["mean"] = "mean"
"""In the place of a head: the mean of all."""

_END = Word(SPECIAL_WORDS[Vocabulary.end], 1)


@dataclass
class Translator:
    """A model and the vocabularies of both its sides: all that translating takes, together.

    Made by `captioner.load_translator` from a model folder, or from its parts.
    config: what `model` was made from. source, target: how text is cut; the same object for a
    joint vocabulary. maximum_source_length: tokens; a longer source is cut there, with a warning.
    search: the options used where a call gives none. card: the text of the model card.
    capitals: which lines in capitals are read as sentences; see `captioner.text.capitals`. Of one
        all in capitals, the translation and the words of the alignment are in capitals too.

    Raises `UserError` when the parts do not fit together.
    """

    config: TranslationModelConfig
    model: TranslationModel
    source: TextVocabulary
    target: TextVocabulary
    maximum_source_length: int = 200
    search: TranslationSearch = field(default_factory=TranslationSearch)
    card: str = ""
    capitals: str = "keep"

    def __post_init__(self) -> None:
        sizes = self.model.embeddings.sizes
        if sizes != (len(self.source), len(self.target)):
            raise UserError(
                f"the model was made for {sizes[0]} source and {sizes[1]} target tokens, but the "
                f"vocabularies have {len(self.source)} and {len(self.target)}"
            )
        if self.maximum_source_length < 1:
            raise UserError(f"maximum_source_length {self.maximum_source_length} is not at least 1")
        check_choice("translator", self, "capitals", CAPITALS)
        self.model.eval()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.embeddings.target_embedding.weight.device

    @property
    def attends(self) -> bool:
        """Whether the model looks at its source, and so has alignments."""
        return self.config.sequence_to_sequence is None

    def to(self, device: torch.device | str) -> Translator:
        """Move the weights to a device, in place; returns itself."""
        self.model.to(device)
        return self

    def choose_alignment(self, layer: int | None, head: int | Literal["mean"] | None) -> None:
        """Take alignments from a decoder layer and a head of a Transformer, from now on.

        layer: counted from 0, below 0 from the last; None leaves it. head: counted from 0, or
        `mean`, the mean of all; None leaves it. Raises `UserError` where there is no such layer or
        head, and for another model. `check_search` says which searches then do not work.
        """
        if layer is None and head is None:
            return
        if not isinstance(self.model, Transformer):
            raise UserError("a layer or head of alignments is of a Transformer, which this is not")
        if isinstance(head, str) and head != MEAN:
            raise UserError(f"alignment head {head!r} is neither a number nor {MEAN}")
        chosen = self.model.alignment_layer if layer is None else layer
        chosen_head = self.model.alignment_head if head is None else head
        if isinstance(chosen_head, str):
            chosen_head = None
        self.model.config.check_alignment(chosen, chosen_head)
        self.model.alignment_layer, self.model.alignment_head = chosen, chosen_head

    def check_search(self, search: TranslationSearch) -> None:
        """Raise `UserError` for options that cannot be had of this model, or have no effect on it.

        An option without effect that was saved with the model is let be. With an alignment of
        another layer or head than the model's own there is neither a coverage penalty nor copying,
        which go by the alignment: what is drawn must not change what is said.
        """
        own = self.search
        if search.copy_unknown and not self.attends:
            raise UserError("copy_unknown needs a model with attention, and this one has none")
        if search.coverage_penalty and not self.attends and not own.coverage_penalty:
            raise UserError("coverage_penalty needs a model with attention, and this one has none")
        if search.copy_unknown and self.target.covers_all_text and not own.copy_unknown:
            raise UserError(
                "copy_unknown has no effect on this model: no word is unknown to its subwords"
            )
        if isinstance(self.model, Transformer) and not self.model.alignment_is_own:
            for name in ("coverage_penalty", "copy_unknown"):
                if getattr(search, name):
                    raise UserError(
                        f"{name} goes by the alignment, and one of another layer or head than the "
                        "model's own would change the translation: only one of the two can be had"
                    )

    def translate(
        self,
        sentences: Sequence[str],
        search: TranslationSearch | None = None,
        batch_size: int = 32,
        generator: torch.Generator | None = None,
    ) -> list[Translation]:
        """Translate sentences, in order.

        search: how; the model's own options by default. batch_size: sentences worked on at a time;
            those of about one length are put together.
        generator: what sampling draws from; by default a new one from the options' seed.

        A sentence without a token is translated as the empty sentence. One that is too long is cut
        with a `UserWarning` that names it, and says so in `Translation.truncated`. A translation
        that had to end at the search's longest length says so in `Translation.cut`. Raises
        `UserError` as `check_search` does.
        """
        if isinstance(sentences, str):
            raise TypeError("translate() takes a list of sentences; put the one sentence in a list")
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        options = self.search if search is None else search
        self.check_search(options)
        generator = generator or options.generator()
        texts = [as_sentence(sentence, self.capitals) for sentence in sentences]
        read = [truncate(self.source.split(text), self.maximum_source_length) for text, _ in texts]
        for number, (tokens, lost) in enumerate(read, start=1):
            if lost:
                warnings.warn(
                    f"sentence {number} has {len(tokens) + lost:,} tokens, of which the last "
                    f"{lost:,} are not read: this model reads {self.maximum_source_length:,}",
                    stacklevel=2,
                )
        found: dict[int, Translation] = {
            place: _nothing(len(tokens)) for place, (tokens, _) in enumerate(read) if not tokens
        }
        order = sorted(
            (place for place in range(len(read)) if place not in found),
            key=lambda place: len(read[place][0]),
        )
        for first in range(0, len(order), batch_size):
            places = order[first : first + batch_size]
            batch = self._translate([read[place][0] for place in places], options, generator)
            for place, translation in zip(places, batch, strict=True):
                found[place] = _with_truncated(translation, read[place][1])
        return [
            _in_capitals(found[place]) if capitals else found[place]
            for place, (_, capitals) in enumerate(texts)
        ]

    @torch.no_grad()
    def _translate(
        self,
        sources: list[list[str]],
        options: TranslationSearch,
        generator: torch.Generator,
    ) -> list[Translation]:
        """One batch, in tokens."""
        tokens, mask = collate_sources([self.source.indices(source) for source in sources])
        forbidden = [Vocabulary.pad, Vocabulary.start]
        if not options.copy_unknown:
            forbidden.append(Vocabulary.unknown)
        found = decode(
            self.model,
            self.model.remember(tokens.to(self.device), mask.to(self.device)),
            start=Vocabulary.start,
            end=Vocabulary.end,
            strategy=options.strategy(generator),
            constraints=options.constraints(tuple(forbidden)),
            length_normalisation=LengthNormalisation(options.length_normalisation),
            coverage_penalty=CoveragePenalty(options.coverage_penalty),
        )
        translations = []
        for source, hypotheses in zip(sources, found, strict=True):
            n_best = [
                self._translation(source, each, options.maximum_length)
                for each in hypotheses[: options.n_best]
            ]
            translations.append(replace(n_best[0], alternatives=tuple(n_best[1:])))
        return translations

    def _translation(self, source: list[str], hypothesis: Hypothesis, longest: int) -> Translation:
        alignment = hypothesis.attention[:, : len(source) + 1]  # (T, S), without padding
        tokens = self.target.tokens(hypothesis.tokens)
        if self.attends:
            tokens = copied(tokens, hypothesis.tokens, source, alignment)
        return Translation(
            text=self.target.join(tokens),
            source_tokens=(*self.source.shown(source), _END.text),
            tokens=tuple(self.target.shown(tokens)),
            log_probability=hypothesis.log_probability,
            token_log_probabilities=tuple(hypothesis.token_log_probabilities[:-1]),
            alignment=alignment if self.attends else alignment[:, :0],
            source_words=(*self.source.words(source), _END),
            words=tuple(self.target.words(tokens)),
            score=hypothesis.score,
            cut=was_cut(hypothesis, longest),
        )


def copied(
    tokens: list[str], indices: list[int], source: list[str], alignment: Tensor
) -> list[str]:
    """The tokens, with the source's in the place of each that is unknown.

    alignment: (T, S), where S is one more than the source's tokens, for the end, which is not
    copied. The token copied is the one most looked at.
    """
    found = list(tokens)
    for place, index in enumerate(indices):
        if index == Vocabulary.unknown and source:
            found[place] = source[int(alignment[place, : len(source)].argmax())]
    return found


def was_cut(hypothesis: Hypothesis, longest: int) -> bool:
    """Whether a hypothesis had to end at the longest length, in tokens, that its search allowed.

    One that is as long and would have ended there by itself is whole: the model held the end for at
    least as likely as all other tokens together.
    """
    ending = hypothesis.token_log_probabilities[-1]
    return len(hypothesis.tokens) >= longest and ending < math.log(0.5)


def _nothing(length: int) -> Translation:
    return Translation("", (_END.text,), (), 0.0, (), torch.empty(0, length + 1), (_END,), ())


def _in_capitals(translation: Translation) -> Translation:
    """Text and words in capitals; the tokens stay as the model read and wrote them."""
    *read, end = translation.source_words
    return replace(
        translation,
        text=translation.text.upper(),
        source_words=(*(Word(text.upper(), size) for text, size in read), end),
        words=tuple(Word(text.upper(), size) for text, size in translation.words),
        alternatives=tuple(map(_in_capitals, translation.alternatives)),
    )


def _with_truncated(translation: Translation, lost: int) -> Translation:
    alternatives = tuple(replace(each, truncated=lost) for each in translation.alternatives)
    return replace(translation, truncated=lost, alternatives=alternatives)
