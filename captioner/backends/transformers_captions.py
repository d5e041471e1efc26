"""Captions by transformers: its `generate`, and a map of each word by its attention.

The text is exactly that of `generate`. The maps come from one teacher-forced pass of the caption:
the attention of the positions that predict a word's pieces, averaged over the heads of the later
half of the layers, at the photo's places alone, renormalised. `map_kind` "gradient" multiplies
the attention with the gradient of the word's log-probability, and keeps the positive part.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioner.arrays import Array
from captioner.backends.protocol import Sentence
from captioner.decoding.options import SearchOptions
from captioner.devices import choose_device, choose_precision
from captioner.errors import UserError, refuse_missing
from captioner.files import read_json
from captioner.model_folders import GENERATION, ModelFolder
from captioner.schema import from_mapping
from captioner.vision.preprocessing import Preprocessing

with refuse_missing("captioners of transformers need transformers", "transformers"):
    import transformers

    from captioner.backends.transformers_families import FAMILIES, CaptionFamily

OURS = ("block_ngrams", "repeat_distance", "truth_weight", "cautious", "without", "begin")
"""Options of our search that `generate` lacks."""

NEW_TOKENS = 20  # Of `generate`, where a model names no length.
DETAILED_TOKENS = 256  # The most of a detailed caption, unless more are asked for.
_TINY = torch.finfo(torch.float32).tiny  # Makes a map of zeros uniform.
_RESAMPLING: dict[int, Any] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers.


@dataclass(repr=False, eq=False)
class TransformersCaptions:
    """The `CaptionBackend` of a captioner of transformers. tokenizer: transformers'.

    It computes one batch at a time: threads may not share a model of transformers.
    """

    engine: ClassVar[str] = "transformers"
    can_sample: ClassVar[bool] = False
    threads: ClassVar[int] = 1

    family: CaptionFamily
    tokenizer: Any
    preprocessing: Preprocessing

    def __post_init__(self) -> None:
        family, size = self.family, self.preprocessing.size
        if size < family.patch or family.size not in (None, size):
            needed = family.size or family.patch
            raise UserError(f"photos of {size} pixels do not fit the vision encoder's {needed}")
        config = family.writer.generation_config
        is_apart = family.tokens == "decoder_input_ids"
        start = config.decoder_start_token_id if is_apart else config.bos_token_id
        self._starts = [each for each in (start, config.forced_bos_token_id) if each is not None]
        ends = config.eos_token_id
        self._ends = [ends] if isinstance(ends, int) else list(ends)

    def __repr__(self) -> str:
        name = type(self.family.writer).__name__
        return f"{name}, {len(self.tokenizer):,} tokens, on {self.device}"

    @property
    def lacks(self) -> Sequence[str]:
        return OURS if self.family.prompted else (*OURS, "detailed")

    @property
    def map_shape(self) -> tuple[int, int]:
        side = self.preprocessing.size // self.family.patch
        return side, side

    @property
    def vocabulary_size(self) -> int:
        return len(self.tokenizer)

    @property
    def device(self) -> torch.device:
        return self.family.writer.device  # type: ignore[no-any-return]

    def for_workers(self, workers: int) -> TransformersCaptions:
        """Itself: all workers share torch's threads."""
        return self

    def unknown(self, words: Iterable[str]) -> list[str]:
        """None: pieces spell every word."""
        return []

    @torch.no_grad()
    def encode(self, pixels: Array) -> Tensor:
        """Pixels (B, 3, size, size), uint8 -> annotation vectors (B, M, D).

        M: the L places of a map, and the positions before them.
        """
        family = self.family
        photos = self.preprocessing.normalise(torch.from_numpy(pixels).to(self.device))
        states = family.tower(photos.to(next(family.tower.parameters()).dtype)).last_hidden_state
        annotations = family.after(states.float()) if family.after else states.float()
        expected = family.first_place + prod(self.map_shape)
        if (count := annotations.shape[1]) != expected:
            raise UserError(f"the vision encoder of {self!r} gives {count} places, not {expected}")
        return annotations

    @torch.no_grad()
    def search(
        self, annotations: Any, search: SearchOptions, generator: None = None
    ) -> list[list[Sentence]]:
        places = self.family.writer.config.get_text_config(decoder=True).max_position_embeddings
        most = places - len(self._starts)  # Tokens for which the decoder has positions.
        longest = min(most, max(search.maximum_length, DETAILED_TOKENS * search.detailed))
        annotations = self._prompted(annotations, search.detailed)
        starts = torch.tensor([self._starts[:1]] * len(annotations), device=self.device)  # (B, 1)
        tokens = self.family.writer.generate(
            num_beams=search.beam,
            num_return_sequences=search.n_best,
            length_penalty=search.length_normalisation,
            min_new_tokens=search.minimum_length,
            max_new_tokens=longest,
            do_sample=False,
            **{self.family.tokens: starts},
            **self.family.memory(annotations),
        )  # (B n_best, 1 + T)
        rows = tokens[:, len(self._starts) :].tolist()
        ranks = [rows[rank :: search.n_best] for rank in range(search.n_best)]
        written = [self._written(annotations, chosen, search) for chosen in ranks]
        return [list(sentences) for sentences in zip(*written, strict=True)]

    def _prompted(self, annotations: Tensor, is_detailed: bool = False) -> Tensor:
        """Annotation vectors (B, M, D), in which a prompt may be behind the places."""
        if self.family.prompted is None:
            return annotations
        return self.family.prompted(annotations, is_detailed)

    def _written(
        self, annotations: Tensor, chosen: list[list[int]], search: SearchOptions
    ) -> Iterator[Sentence]:
        """The tokens of a caption for each of B photos -> its sentence."""
        ended = [[token in self._ends for token in row] for row in chosen]
        lengths = [row.index(True) if any(row) else len(row) for row in ended]
        tokens = [row[:length] for row, length in zip(chosen, lengths, strict=True)]
        texts, owners = zip(*map(self._words_of, tokens), strict=True)
        words, by_gradient = list(map(str.split, texts)), search.map_kind == "gradient"
        scored = self._scored(annotations, tokens, owners, words, by_gradient)
        for text, row, length, sentence in zip(texts, ended, lengths, scored, strict=True):
            terms = sentence.log_probabilities[: None if any(row) else -1]
            score = sum(terms) / max(length + any(row), 1) ** search.length_normalisation
            yield sentence._replace(text=text, score=score, cut=not any(row))

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
            [f" {word}"[not place :] for place, word in enumerate(words)] for words in captions
        ]
        pieces = [list(map(encode, words)) for words in texts]
        tokens = [[token for of_word in row for token in of_word] for row in pieces]
        owners = [[place for place, of_word in enumerate(row) for _ in of_word] for row in pieces]
        return self._scored(self._prompted(annotations), tokens, owners, captions)

    def _scored(
        self,
        annotations: Tensor,
        tokens: Sequence[list[int]],
        owners: Sequence[list[int]],
        captions: Sequence[Sequence[str]],
        by_gradient: bool = False,
    ) -> list[Sentence]:
        """Words with their log-probabilities and maps, in one pass.

        owners: for each token, the index of its word in the caption. by_gradient: whether maps are
        those of `SearchOptions.map_kind` "gradient".
        """
        rows = [torch.tensor([*self._starts, *row, self._ends[0]]) for row in tokens]
        padded = pad_sequence(rows, batch_first=True).to(self.device)  # (B, P + T + 1)
        targets = padded[:, len(self._starts) :, None]  # (B, T + 1, 1)
        owned = [torch.tensor([*row, -1], device=self.device) for row in owners]
        owner = pad_sequence(owned, batch_first=True, padding_value=-1)  # (B, T + 1)
        places = torch.arange(max(1, *map(len, captions)), device=self.device)  # (W,)
        of_word = (owner[:, None] == places[:, None]).float()  # (B, W, T + 1)
        with torch.set_grad_enabled(by_gradient):
            output = self.family.writer(
                output_attentions=True,
                use_cache=False,
                **{self.family.tokens: padded[:, :-1]},
                **self.family.memory(annotations.detach().requires_grad_(by_gradient)),
            )
            terms = torch.log_softmax(output.logits[:, -targets.shape[1] :].float(), dim=-1)
            terms = terms.gather(-1, targets)  # (B, T + 1, 1)
            sums = (of_word @ terms).squeeze(-1)  # (B, W)
        later = output[self.family.attentions]
        later = later[len(later) // 2 :]
        attention = torch.stack(later).detach()  # (layers, B, heads, P + T, M)
        maps = of_word @ self._at_places(attention, len(terms[0]))  # (B, W, L)
        for place in range(len(places)) if by_gradient else ():
            # Grad-CAM (Selvaraju et al. 2017) of attention, as ALBEF's maps (Li et al. 2021).
            is_word = (places == place).float().expand_as(sums)  # (B, W)
            gradients = torch.autograd.grad(sums, later, is_word, retain_graph=True)
            weights = self._at_places((torch.stack(gradients) * attention).relu(), len(terms[0]))
            maps[:, place] = (of_word[:, place, None] @ weights)[:, 0]
        maps = (maps + _TINY) / (maps + _TINY).sum(dim=-1, keepdim=True)
        sentences = []
        for row, words in enumerate(captions):
            of_words = sums[row, : len(words)].tolist()
            rest = float(terms[row, : len(tokens[row]) + 1].sum()) - sum(of_words)
            attended = maps[row, : len(words)].cpu().numpy()
            sentences.append(Sentence(list(words), [*of_words, rest], attended))
        return sentences

    def _at_places(self, weights: Tensor, steps: int) -> Tensor:
        """Weights (layers, B, heads, P + T, M) -> their mean at the last steps, (B, steps, L)."""
        first = self.family.first_place
        return weights[..., -steps:, first : first + prod(self.map_shape)].mean(dim=(0, 2))


def open_captions(folder: ModelFolder, device: str, precision: str) -> TransformersCaptions:
    """The backend of a folder of transformers; runs no code of the folder, downloads nothing."""
    folder.check_family(str(folder.path))
    folder.check_safetensors(str(folder.path))
    dtype, place = choose_precision(precision), choose_device(device)
    name, take_apart = FAMILIES[folder.config["model_type"]]
    local = {"local_files_only": True, "trust_remote_code": False}
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with _explained(folder):
        processor = transformers.AutoImageProcessor.from_pretrained(folder.files, **local)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder.files, **local)
        model, found = getattr(transformers, name).from_pretrained(
            folder.files,
            use_safetensors=True,
            dtype=torch.float32,
            attn_implementation="eager",  # Which gives maps.
            output_loading_info=True,
            **local,
        )
        missing = sorted(name for name in found["missing_keys"] if "pooler" not in name)
        if missing:
            raise UserError(f"the weights lack {missing[0]!r}; they are of another architecture")
        family = take_apart(model.to(place).eval(), tokenizer)
        family.tower.to(dtype)
        return TransformersCaptions(family, tokenizer, preprocessing_of(processor))


def preprocessing_of(processor: Any) -> Preprocessing:
    """An image processor of transformers as our preprocessing; refuses what that cannot say."""
    size = {name: value for name, value in dict(processor.size).items() if value}
    is_cropped = getattr(processor, "do_center_crop", False)
    crop: dict[str, Any] = dict(processor.crop_size) if is_cropped else size
    side, seen = next(iter(size.values())), crop.get("height", 0)
    is_known = (
        size == ({"shortest_edge": side} if is_cropped else {"height": side, "width": side})
        and crop.get("width") == seen
        and processor.do_resize
        and processor.do_rescale
        and abs(processor.rescale_factor * 255 - 1) < 1e-6
        and processor.resample in _RESAMPLING
    )
    if not is_known:
        raise UserError(f"this preprocessing is unknown here: {processor.to_dict()}")
    is_normalised = processor.do_normalize
    return Preprocessing(
        size=seen,
        resize="crop" if is_cropped else "squash",
        resize_shorter=side,
        mean=tuple(processor.image_mean) if is_normalised else (0.0, 0.0, 0.0),
        standard_deviation=tuple(processor.image_std) if is_normalised else (1.0, 1.0, 1.0),
        interpolation=_RESAMPLING[processor.resample],
    )


def default_search(folder: ModelFolder) -> SearchOptions:
    """The search of a folder's generation config, or else that of `generate`."""
    folder.check_family(str(folder.path))
    path = folder.files / GENERATION
    given = read_json(path, "generation config") if os.path.isfile(path) else folder.config
    given = {name: value for name, value in dict(given).items() if value is not None}
    longest = given.get("max_length", NEW_TOKENS + 1) - 1  # Without the token that starts.
    options = {
        "beam": given.get("num_beams", 1),
        "n_best": given.get("num_return_sequences", 1),
        "length_normalisation": given.get("length_penalty", 1.0),
        "minimum_length": given.get("min_new_tokens", max(given.get("min_length", 0) - 1, 0)),
        "maximum_length": given.get("max_new_tokens", longest),
    }
    return from_mapping(SearchOptions, options, str(path))


@contextmanager
def _explained(folder: ModelFolder) -> Iterator[None]:
    """Makes one sentence of transformers' errors, which are of many kinds."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise UserError(f"transformers cannot load {folder.path}: {reason}") from None
