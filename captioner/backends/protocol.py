"""The protocols of backends, which compute the networks of captioners and translators."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

from captioner.arrays import Array, Device, Generator, Values
from captioner.decoding.options import AnySearch, SearchOptions, TranslationSearch
from captioner.decoding.rules import Constraints
from captioner.decoding.search import Hypothesis
from captioner.errors import INSTALL, UserError
from captioner.text import SentenceVocabulary
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing

Words = Sequence[str]  # Of a caption.

OF_TRANSFORMERS = {"map_kind": "a model of transformers", "detailed": "Florence-2"}
"""Fields of `SearchOptions`, and what they need."""


class Sentence(NamedTuple):
    """A caption in words, as a backend gives it.

    words: T. log_probabilities: T + 1, in nats, the end's last. attention: float32, a map of each
    word, (T, L), or (T, rows, columns) where each photo has its own. score: by which a search
    ranks, None of a given sentence. cut: as `Hypothesis`. text: the words as printed; None where
    they are joined as `captioner.caption.caption` does.
    """

    words: list[str]
    log_probabilities: list[float]
    attention: Array
    score: float | None = None
    cut: bool = False
    text: str | None = None


class Backend(Protocol):
    """What the backends of captions and of translations have.

    engine: its name. can_sample: whether it draws samples.
    """

    engine: ClassVar[str]
    can_sample: ClassVar[bool]

    @property
    def lacks(self) -> Sequence[str]:
        """The fields of `SearchOptions` that it does not follow."""

    @property
    def device(self) -> Device:
        """Torch's device; None where nothing is computed by torch."""


class CaptionBackend(Backend, Protocol):
    """Computes captions of preprocessed photos.

    map_shape: rows and columns of an attention map. threads: of a CPU that compute a batch; 1 of a
    GPU.
    """

    @property
    def preprocessing(self) -> Preprocessing:
        """From photos to the pixels that `encode` takes."""

    @property
    def map_shape(self) -> tuple[int, int]:
        """Rows and columns of an attention map; L is their product."""

    @property
    def vocabulary_size(self) -> int:
        """V, the words or other tokens that captions are made of."""

    @property
    def threads(self) -> int:
        """Threads of a CPU that compute a batch."""

    def encode(self, pixels: Array) -> Values:
        """Pixels (B, 3, size, size), uint8 -> annotation vectors (B, L, D)."""

    def search(
        self, annotations: Values, search: SearchOptions, generator: Generator = None
    ) -> list[list[Sentence]]:
        """Annotation vectors (B, L, D) -> the sentences of each photo, best first.

        generator: of samples, torch's, on its device.
        """

    def teacher_forced(self, annotations: Values, captions: Sequence[Words]) -> list[Sentence]:
        """Annotation vectors (B, L, D), and the words of a caption for each -> their scores.

        A word that it lacks is fed and scored as the unknown-word token, as in training.
        """

    def unknown(self, words: Iterable[str]) -> list[str]:
        """Those words, each once, for which it has the unknown-word token alone."""

    def for_workers(self, workers: int) -> "CaptionBackend":
        """This backend, for so many threads that caption a batch each; 0: the caller alone."""


class TranslationBackend(Backend, Protocol):
    """Computes translations of tokens."""

    source: SentenceVocabulary
    target: SentenceVocabulary

    @property
    def attends(self) -> bool:
        """Whether the model has attention, and so alignments."""

    def search(
        self, sources: list[list[int]], search: TranslationSearch, generator: Generator = None
    ) -> list[list[Hypothesis]]:
        """Source tokens -> the hypotheses of each, best first."""

    def choose_alignment(self, layer: int | None, head: int | Literal["mean"] | None) -> None:
        """Set the layer and head of the alignments; None keeps each. See `Translator`."""


def translation_constraints(search: TranslationSearch) -> Constraints:
    """The limits of a search. The unknown-word token is for words that are copied."""
    unknown = () if search.copy_unknown else (Vocabulary.unknown,)
    return Constraints(search, (Vocabulary.pad, Vocabulary.start, *unknown))


def check_search(backend: Backend, search: AnySearch) -> None:
    """Refuse a search that a backend cannot follow, or whose beginning it cannot say."""
    for name in search.model_dump(include={*backend.lacks}, exclude_defaults=True):
        needed = OF_TRANSFORMERS.get(name)
        advice = f"it needs {needed}" if needed else "leave it out"
        raise UserError(f"a captioner by {backend.engine!r} cannot be given {name!r}: {advice}")
    if search.sample and not backend.can_sample:
        advice = f"sampling needs torch ({INSTALL}) and engine 'torch'"
        raise UserError(f"the engine {backend.engine!r} draws no samples: {advice}")
    if isinstance(search, SearchOptions) and search.begin:
        begin, most = tokenize(search.begin), search.maximum_length
        if len(begin) > most:
            raise UserError(f"begin has more words than maximum_length, {most}")
        lacking = {*backend.unknown(begin), *search.forbidden_in(begin)}  # type: ignore[attr-defined]
        if lacking:
            raise UserError(f"begin has words that cannot be said: {', '.join(sorted(lacking))}")


def new_generator(backend: Backend, search: AnySearch) -> Generator:
    """The generator of the samples of all batches; None without sampling."""
    if not search.sample:
        return None
    from captioner.decoding.loop import make_generator

    return make_generator(search, backend.device or "cpu")
