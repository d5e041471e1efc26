"""Captions by transformers: its `generate`, and a map of each word by its attention.

The text is exactly that of `generate`. The maps come from one teacher-forced pass of the caption:
the attention of the positions that predict a word's pieces, averaged over the heads of the later
half of the layers, at the photo's places alone, renormalised. `map_kind` "gradient" multiplies
the attention with the gradient of the word's log-probability, and keeps the positive part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioner.arrays import Array, Generator
from captioner.backends.protocol import Sentence
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError, refuse_errors
from captioner.text.languages import ENGLISH, language_of
from captioner.vision.images import ImageSource, load_image

OURS = ("block_ngrams", "repeat_distance", "truth_weight", "cautious", "without", "begin")
"""Options of our search that `generate` lacks."""

DETAILED_TOKENS = 256  # The most of a detailed caption, unless more are asked for.
_TINY = torch.finfo(torch.float32).tiny  # Makes a map of zeros uniform.


@dataclass(frozen=True)
class ProcessorPixels:
    """Photos as a folder's own image processor prepares them, from all their pixels."""

    processor: Any
    sufficient_side: ClassVar[None] = None

    def load(
        self, source: ImageSource, name: str | None = None, seconds: float | None = None
    ) -> Image.Image:
        """Load a photo as `load_image` does, whole."""
        return load_image(source, name=name, decoding_seconds=seconds)

    def pixels(self, image: Image.Image) -> Array:
        """The photo as (3, height, width), float32, normalised."""
        return self.processor(image, return_tensors="pt").pixel_values[0].numpy()  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """Pixels, the shorter side of what the encoder sees."""
        return int(min(self.pixels(Image.new("RGB", (64, 48))).shape[1:]))

    def region(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what the encoder sees, in pixels of the upright photo."""
        if not getattr(self.processor, "do_center_crop", False):
            return 0.0, 0.0, float(width), float(height)
        size, crop = dict(self.processor.size), dict(self.processor.crop_size)
        edge, begins, ends = size.get("shortest_edge"), [], []
        for side, name in ((width, "width"), (height, "height")):
            scaled = int(edge * side / min(width, height)) if edge else size[name]
            first = int((scaled - crop[name]) / 2)
            begins.append(first * side / scaled)
            ends.append((first + crop[name]) * side / scaled)
        return begins[0], begins[1], ends[0], ends[1]


@dataclass(repr=False, eq=False)
class TransformersCaptions:
    """The `CaptionBackend` of a captioner of transformers: what all its families share.

    writer: the model that generates; its `generation_config` names the tokens that start and end.
    tokenizer: transformers'. A family adds `encode`, `map_shape`, and the three methods below
    that raise. It computes one batch at a time: threads may not share a model of transformers.
    """

    engine: ClassVar[str] = "transformers"
    can_sample: ClassVar[bool] = True
    threads: ClassVar[int] = 1
    leading: ClassVar[str] = ""

    writer: Any
    tokenizer: Any
    preprocessing: ProcessorPixels

    def __post_init__(self) -> None:
        count, rows = self.vocabulary_size, self.writer.get_input_embeddings().num_embeddings
        if count > rows:
            advice = f"call resize_token_embeddings({count}) before saving the model"
            raise UserError(f"the tokenizer has {count} tokens, and the model {rows}: {advice}")
        self._ends = self._tokens_named("eos_token_id")

    def __repr__(self) -> str:
        name = type(self.writer).__name__
        return f"{name}, {len(self.tokenizer):,} tokens, on {self.device}"

    def _tokens_named(self, name: str) -> list[int]:
        """The tokens of a field of the generation config; refuses what is none."""
        value = getattr(self.writer.generation_config, name)
        tokens = value if isinstance(value, list) else [value]
        rows = self.writer.get_input_embeddings().num_embeddings
        if not tokens or not all(type(one) is int and 0 <= one < rows for one in tokens):
            raise UserError(f"{name} {value!r} of the generation config is no token below {rows}")
        return tokens

    @property
    def lacks(self) -> Sequence[str]:
        return (*OURS, "detailed")

    @property
    def vocabulary_size(self) -> int:
        return len(self.tokenizer)

    @property
    def device(self) -> torch.device:
        return self.writer.device  # type: ignore[no-any-return]

    def for_workers(self, workers: int) -> TransformersCaptions:
        """Itself: all workers share torch's threads."""
        return self

    def unknown(self, words: Iterable[str]) -> list[str]:
        """None, since pieces spell every word, but of a caption in German or French: all."""
        several = list(words)
        return [] if language_of(several) == ENGLISH else several

    def prompted(self, annotations: Any, is_detailed: bool = False) -> Any:
        """The annotations, in which a prompt may be behind the places."""
        return annotations

    def most_tokens(self, annotations: Any) -> int:
        """Tokens that fit into the writer's positions."""
        raise NotImplementedError

    def generate(self, annotations: Any, options: dict[str, Any]) -> list[list[int]]:
        """The new tokens of `generate`, of each photo `num_return_sequences` rows."""
        raise NotImplementedError

    def force(self, annotations: Any, tokens: Tensor) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Feed tokens (B, T) behind what starts a caption.

        Gives logits (B, ..., V) whose last T + 1 predict them and the end, the attention (B, heads,
        ..., M) of each layer, and which of M are the places of a map, (rows, columns).
        """
        raise NotImplementedError

    @torch.no_grad()
    def search(
        self, annotations: Any, search: SearchOptions, generator: Generator = None
    ) -> list[list[Sentence]]:
        annotations = self.prompted(annotations, search.detailed)
        most, least = self.most_tokens(annotations), search.minimum_length
        if least > most:
            raise UserError(f"minimum_length {least} is more than the model's {most} positions")
        longest = max(search.maximum_length, DETAILED_TOKENS * search.detailed)
        options = {
            "min_new_tokens": least,
            "max_new_tokens": min(most, longest),
            "num_return_sequences": search.n_best,
            "length_penalty": search.length_normalisation,
            "num_beams": 1 if search.sample else search.beam,
            "do_sample": search.sample,
        }
        if search.sample:
            options |= search.model_dump(include={"temperature", "top_k", "top_p"})
        devices = range(torch.cuda.device_count())
        with torch.random.fork_rng(devices, enabled=search.sample):
            if generator is not None:  # `generate` draws from torch's own generator.
                seed = torch.randint(2**62, (), generator=generator, device=generator.device)
                torch.manual_seed(int(seed))
            with refuse_errors(f"transformers cannot caption with {self!r}"):
                rows = self.generate(annotations, options)
        ranks = [rows[rank :: search.n_best] for rank in range(search.n_best)]
        written = [self._written(annotations, chosen, search) for chosen in ranks]
        return [list(sentences) for sentences in zip(*written, strict=True)]

    def _written(
        self, annotations: Any, chosen: list[list[int]], search: SearchOptions
    ) -> Iterator[Sentence]:
        """The tokens of a caption for each of B photos -> its sentence."""
        tokens = [list(takewhile(lambda token: token not in self._ends, row)) for row in chosen]
        texts, owners = zip(*map(self._words_of, tokens), strict=True)
        words, by_gradient = list(map(str.split, texts)), search.map_kind == "gradient"
        scored = self._scored(annotations, tokens, owners, words, by_gradient)
        for text, row, whole, sentence in zip(texts, tokens, chosen, scored, strict=True):
            terms, length = sentence.log_probabilities, len(row) + 1
            is_cut = len(row) == len(whole)
            if is_cut:  # Its end was not written.
                terms, length = terms[:-1], max(len(row), 1)
            score = sum(terms) / length**search.length_normalisation
            yield sentence._replace(text=text, score=score, cut=is_cut)

    def _words_of(self, tokens: list[int]) -> tuple[str, list[int]]:
        """The decoder's text of T tokens, and for each the index of the word it belongs to."""
        stops = range(1, len(tokens) + 1)
        texts = [self.tokenizer.decode(tokens[:stop], skip_special_tokens=True) for stop in stops]
        owners = [max(len(text.split()) - 1, 0) for text in texts]
        # A decoder may join what it had split: "man ' s" becomes "man's".
        return texts[-1].strip() if texts else "", [*accumulate(reversed(owners), min)][::-1]

    def teacher_forced(self, annotations: Any, captions: Sequence[Sequence[str]]) -> list[Sentence]:
        encode = partial(self.tokenizer.encode, add_special_tokens=False)
        # Byte-level BPE begins a word with its space.
        texts = [
            [f" {word}" if place else f"{self.leading}{word}" for place, word in enumerate(words)]
            for words in captions
        ]
        pieces = [list(map(encode, words)) for words in texts]
        tokens = [[token for of_word in row for token in of_word] for row in pieces]
        owners = [[place for place, of_word in enumerate(row) for _ in of_word] for row in pieces]
        return self._scored(self.prompted(annotations), tokens, owners, captions)

    def _scored(
        self,
        annotations: Any,
        tokens: Sequence[list[int]],
        owners: Sequence[list[int]],
        captions: Sequence[Sequence[str]],
        by_gradient: bool = False,
    ) -> list[Sentence]:
        """Words with their log-probabilities and maps, in one pass.

        owners: for each token, the index of its word in the caption. by_gradient: whether maps are
        those of `SearchOptions.map_kind` "gradient".
        """
        rows = [torch.tensor([*row, self._ends[0]]) for row in tokens]
        targets = pad_sequence(rows, batch_first=True).to(self.device)  # (B, T + 1)
        owned = [torch.tensor([*row, -1], device=self.device) for row in owners]
        owner = pad_sequence(owned, batch_first=True, padding_value=-1)  # (B, T + 1)
        numbers = torch.arange(max(1, *map(len, captions)), device=self.device)  # (W,)
        of_word = (owner[:, None] == numbers[:, None]).float()  # (B, W, T + 1)
        with torch.set_grad_enabled(by_gradient):
            logits, attentions, places = self.force(annotations, targets[:, :-1])
            steps = targets.shape[1]  # T + 1
            terms = torch.log_softmax(logits[:, -steps:].float(), dim=-1)
            terms = terms.gather(-1, targets[..., None])  # (B, T + 1, 1)
            sums = (of_word @ terms).squeeze(-1)  # (B, W)

        def at_places(weights: Tensor) -> Tensor:
            """(layers, B, heads, ..., M) -> the mean of the last steps, (B, T + 1, L)."""
            return weights[..., -steps:, places.flatten()].float().mean(dim=(0, 2))

        later = attentions[len(attentions) // 2 :]
        attention = torch.stack(later).detach()
        maps = of_word @ at_places(attention)  # (B, W, L)
        for number in range(len(numbers)) if by_gradient else ():
            # Grad-CAM (Selvaraju et al. 2017) of attention, as ALBEF's maps (Li et al. 2021).
            is_word = (numbers == number).float().expand_as(sums)  # (B, W)
            gradients = torch.autograd.grad(sums, later, is_word, retain_graph=True)
            weights = at_places((torch.stack(gradients) * attention).relu())
            maps[:, number] = (of_word[:, number, None] @ weights)[:, 0]
        maps = (maps + _TINY) / (maps + _TINY).sum(dim=-1, keepdim=True)
        sentences = []
        for row, words in enumerate(captions):
            of_words = sums[row, : len(words)].tolist()
            rest = float(terms[row, : len(tokens[row]) + 1].sum()) - sum(of_words)
            attended = maps[row, : len(words)].view(-1, *places.shape).cpu().numpy()
            sentences.append(Sentence(list(words), [*of_words, rest], attended))
        return sentences
