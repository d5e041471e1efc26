"""The public translator: sentences to translations with alignments."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from captioner.decoding import (
    Hypothesis,
    TranslationSearch,
    decode,
)
from captioner.errors import UserError
from captioner.text.capitals import Capitals, as_sentence
from captioner.text.text_vocabulary import TextVocabulary, Word, truncate
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.translate.model import TranslationModel
from captioner.translate.model_config import TranslationModelConfig
from captioner.translate.transformer import Transformer
from captioner.translate.translation import Translation

MEAN: Literal["mean"] = "mean"
"""In place of a head: the mean of all heads."""

_END = Word(SPECIAL_WORDS[Vocabulary.end], 1)
_EMPTY = Translation("", (_END.text,), (), 0.0, (), torch.empty(0, 1), (_END,), ())


@dataclass(repr=False)
class Translator:
    """A translation model with its vocabularies, made by `captioner.load_translator`.

    config: of `model`. source, target: vocabularies; the same object if joint.
    maximum_source_length: tokens; longer sources are cut with a warning.
    search: default search options. card: text of the model card.
    capitals: which lines are rewritten as sentences, see `captioner.text.capitals`. The translation
        and the words of the alignment of a line in upper case are in upper case too.

    Raises `UserError` if the parts do not fit together.
    """

    config: TranslationModelConfig
    model: TranslationModel
    source: TextVocabulary
    target: TextVocabulary
    maximum_source_length: int = 200
    search: TranslationSearch = field(default_factory=TranslationSearch)
    card: str = ""
    capitals: Capitals = "keep"

    def __post_init__(self) -> None:
        sizes = self.model.embeddings.sizes
        if sizes != (len(self.source), len(self.target)):
            raise UserError(
                f"the model has {sizes[0]} source and {sizes[1]} target tokens, but the "
                f"vocabularies have {len(self.source)} and {len(self.target)}"
            )
        self.model.eval()

    def __repr__(self) -> str:
        sizes = f"{len(self.source):,} source and {len(self.target):,} target tokens"
        return f"Translator({type(self.model).__name__}, {sizes}, on {self.device})"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.embeddings.target_embedding.weight.device

    @property
    def attends(self) -> bool:
        """Whether the model has attention, and so alignments."""
        return self.config.sequence_to_sequence is None

    def to(self, device: torch.device | str) -> Translator:
        """Move the weights to a device, in place; return the translator."""
        self.model.to(device)
        return self

    def choose_alignment(self, layer: int | None, head: int | Literal["mean"] | None) -> None:
        """Set the decoder layer and head of a Transformer that alignments come from.

        layer: counted from 0, or from -1 for the last; None keeps it. head: counted from 0, or
        `mean`; None keeps it. Raises `UserError` if there is no such layer or head, and for other
        models. See `check_search` for the searches this rules out.
        """
        if layer is None and head is None:
            return
        if not isinstance(self.model, Transformer):
            raise UserError("an alignment layer or head needs a Transformer, which this is not")
        if isinstance(head, str) and head != MEAN:
            raise UserError(f"alignment head {head!r} is neither a number nor {MEAN}")
        chosen = self.model.alignment_layer if layer is None else layer
        chosen_head = self.model.alignment_head if head is None else head
        if isinstance(chosen_head, str):
            chosen_head = None
        self.model.config.replace(alignment_layer=chosen, alignment_head=chosen_head)  # Checks.
        self.model.alignment_layer, self.model.alignment_head = chosen, chosen_head

    def check_search(self, search: TranslationSearch) -> None:
        """Raise `UserError` for options that this model does not support or that have no effect.

        An option without effect that was saved with the model is accepted. Coverage penalty and
        copying use the alignment, so they need the model's own layer and head: choosing another for
        display must not change the translation.
        """
        saved = self.search
        if search.copy_unknown and not self.attends:
            raise UserError("copy_unknown needs a model with attention, and this one has none")
        if search.coverage_penalty and not self.attends and not saved.coverage_penalty:
            raise UserError("coverage_penalty needs a model with attention, and this one has none")
        if search.copy_unknown and self.target.covers_all_text and not saved.copy_unknown:
            raise UserError(
                "copy_unknown has no effect on this model: no word is unknown to its subwords"
            )
        if isinstance(self.model, Transformer) and not self.model.has_default_alignment:
            for name in ("coverage_penalty", "copy_unknown"):
                if getattr(search, name):
                    raise UserError(
                        f"{name} uses the alignment, so another alignment layer or head would "
                        "change the translation: choose one of the two"
                    )

    def translate(
        self,
        sentences: Sequence[str],
        search: TranslationSearch | None = None,
        batch_size: int = 32,
        generator: torch.Generator | None = None,
    ) -> list[Translation]:
        """Translate sentences, in order.

        search: search options; by default those of the model. batch_size: sentences decoded
            together, sorted by length.
        generator: for sampling; by default a new one with the seed of the options.

        An empty sentence has an empty translation. A sentence that is too long is cut with a
        `UserWarning` that names it; see `Translation.truncated`. A translation that reaches the
        maximum length has `Translation.cut`. Raises `UserError` as `check_search` does.
        """
        if isinstance(sentences, str):
            raise TypeError("translate() takes a list of sentences; put the one sentence in a list")
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        options = self.search if search is None else search
        self.check_search(options)
        generator = generator or options.generator(self.device)
        texts = [as_sentence(sentence, self.capitals) for sentence in sentences]
        sources = [
            truncate(self.source.split(text), self.maximum_source_length) for text, _ in texts
        ]
        for number, (tokens, lost) in enumerate(sources, start=1):
            if lost:
                warnings.warn(
                    f"sentence {number} has {len(tokens) + lost:,} tokens, of which the last "
                    f"{lost:,} are not read: this model reads {self.maximum_source_length:,}",
                    stacklevel=2,
                )
        translations = [_EMPTY] * len(sources)
        order = sorted(
            (index for index, (tokens, _) in enumerate(sources) if tokens),
            key=lambda index: len(sources[index][0]),
        )
        for first in range(0, len(order), batch_size):
            indices = order[first : first + batch_size]
            batch = self._translate([sources[index][0] for index in indices], options, generator)
            for index, translation in zip(indices, batch, strict=True):
                translations[index] = _with_truncated(translation, sources[index][1])
        return [
            _upper_case(translation) if is_upper else translation
            for translation, (_, is_upper) in zip(translations, texts, strict=True)
        ]

    @torch.no_grad()
    def _translate(
        self,
        sources: list[list[str]],
        options: TranslationSearch,
        generator: torch.Generator,
    ) -> list[Translation]:
        """Translate one batch of tokens."""
        tokens, mask = collate_sources([self.source.indices(source) for source in sources])
        forbidden = [Vocabulary.pad, Vocabulary.start]
        if not options.copy_unknown:
            forbidden.append(Vocabulary.unknown)
        batch = decode(
            self.model,
            self.model.remember(tokens.to(self.device), mask),
            start=Vocabulary.start,
            end=Vocabulary.end,
            strategy=options.strategy(generator),
            constraints=options.constraints(tuple(forbidden)),
            length_normalisation=options.length_normalisation,
            coverage_penalty=options.coverage_penalty,
        )
        translations = []
        for source, hypotheses in zip(sources, batch, strict=True):
            n_best = [self._translation(source, each) for each in hypotheses[: options.n_best]]
            translations.append(replace(n_best[0], alternatives=tuple(n_best[1:])))
        return translations

    def _translation(self, source: list[str], hypothesis: Hypothesis) -> Translation:
        alignment = hypothesis.attention[:, : len(source) + 1]  # (T, S), without padding
        tokens = self.target.tokens(hypothesis.tokens)
        if self.attends:
            tokens = copy_source_words(tokens, hypothesis.tokens, source, alignment)
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
            cut=hypothesis.cut,
        )


def copy_source_words(
    tokens: list[str], indices: list[int], source: list[str], alignment: Tensor
) -> list[str]:
    """Replace each unknown token by the source token with the most attention.

    alignment: (T, S); S counts the source's end, which is never copied.
    """
    result = list(tokens)
    for position, index in enumerate(indices):
        if index == Vocabulary.unknown and source:
            result[position] = source[int(alignment[position, : len(source)].argmax())]
    return result


def _upper_case(translation: Translation) -> Translation:
    """Upper-case the text and the words; tokens stay unchanged."""
    *source, end = translation.source_words
    return replace(
        translation,
        text=translation.text.upper(),
        source_words=(*(Word(text.upper(), size) for text, size in source), end),
        words=tuple(Word(text.upper(), size) for text, size in translation.words),
        alternatives=tuple(map(_upper_case, translation.alternatives)),
    )


def _with_truncated(translation: Translation, lost: int) -> Translation:
    alternatives = tuple(replace(each, truncated=lost) for each in translation.alternatives)
    return replace(translation, truncated=lost, alternatives=alternatives)
