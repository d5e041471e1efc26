"""Vision-language models of transformers, asked for a sentence about a photo.

The prompt holds the photo's tokens. `generate` writes behind it, by torch's fused attention, which
gives no maps. For these the prompt is cached, and its last token and the caption are fed again by
plain attention: of S tokens of a prompt and T of a caption (T + 1, S + T) weights, not (S, S).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import BatchFeature

from captioner.arrays import Array, Generator
from captioner.backends.protocol import Sentence
from captioner.backends.transformers_captions import ProcessorPixels, TransformersCaptions
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError


class Prompt(NamedTuple):
    """What a family is asked, and where its places are.

    text: as its chat template writes it. leading: what stands before the first word.
    grid: the processor and its output -> rows and columns of a map, the last tokens of the photo.
    """

    text: str
    leading: str
    grid: Callable[[Any, Any], tuple[int, int]]


def _square(processor: Any, inputs: Any) -> tuple[int, int]:
    """A square of tokens a tile: SmolVLM's last tile, and PaliGemma's only one, is the photo."""
    count = getattr(processor, "image_seq_len", None) or processor.image_seq_length
    return isqrt(count), isqrt(count)


def _merged(processor: Any, inputs: Any) -> tuple[int, int]:
    """Qwen's patches, merged: as many as the photo's shape asks for."""
    merged = inputs["image_grid_thw"][0] // processor.image_processor.merge_size
    return int(merged[1]), int(merged[2])


_ASKED = "Describe this image in one sentence."
_SMOL = f"<|im_start|>User:<image>{_ASKED}<end_of_utterance>\nAssistant:"
_QWEN = f"""<|im_start|>system
You are a helpful assistant.<|im_end|>
<|im_start|>user
<|vision_start|><|image_pad|><|vision_end|>{_ASKED}<|im_end|>
<|im_start|>assistant
"""
PROMPTS = {
    "smolvlm": Prompt(_SMOL, " ", _square),
    "idefics3": Prompt(_SMOL, " ", _square),
    "qwen2_5_vl": Prompt(_QWEN, "", _merged),
    "paligemma": Prompt("<image>caption en", "", _square),
}
"""By the `model_type` of a config."""


@dataclass(frozen=True)
class PromptedPhotos(ProcessorPixels):
    """Photos as a folder's own processor prepares them with the prompt."""

    prompt: Prompt
    size: ClassVar[int] = 448  # Pixels, of photos that are drawn for a test.

    def pixels(self, image: Image.Image) -> Array:
        """What the model takes, in an array without dimensions: photos of any size are a batch."""
        given = {"text": [self.prompt.text], "images": [image], "return_tensors": "pt"}
        inputs = {**self.processor(**given)}
        inputs.pop("labels", None)  # Of training.
        held = np.empty((), dtype=object)
        held[()] = inputs
        return held

    def grid(self, inputs: Any) -> tuple[int, int]:
        """Rows and columns of the map of a prepared photo."""
        return self.prompt.grid(self.processor, inputs)


@dataclass(repr=False, eq=False)
class VisionLanguageCaptions(TransformersCaptions):
    """The `CaptionBackend` of a vision-language model; its annotations are prompts, one a photo."""

    preprocessing: PromptedPhotos

    def __post_init__(self) -> None:
        super().__post_init__()
        photos = self.preprocessing
        square = photos.pixels(Image.new("RGB", (photos.size, photos.size)))
        self.map_shape = photos.grid(square[()])  # A map has the rows and columns of its photo.

    @property
    def leading(self) -> str:  # type: ignore[override]
        return self.preprocessing.prompt.leading

    def encode(self, pixels: Array) -> list[Any]:
        """Prepared photos (B,) -> what the model takes of each, with the prompt (1, S)."""
        return [BatchFeature(each).to(self.device, self.writer.dtype) for each in pixels]

    def search(
        self, annotations: list[Any], search: SearchOptions, generator: Generator = None
    ) -> list[list[Sentence]]:
        of_one = super().search
        return [of_one([each], search, generator)[0] for each in annotations]

    def teacher_forced(self, annotations: Any, captions: Sequence[Sequence[str]]) -> list[Sentence]:
        of_one, pairs = super().teacher_forced, zip(annotations, captions, strict=True)
        return [of_one([each], [words])[0] for each, words in pairs]

    def most_tokens(self, annotations: Any) -> int:
        (inputs,) = annotations
        places: int = self.writer.config.get_text_config(decoder=True).max_position_embeddings
        return places - int(inputs["input_ids"].shape[1])

    def generate(self, annotations: Any, options: dict[str, Any]) -> list[list[int]]:
        (inputs,) = annotations
        tokens = self.writer.generate(**inputs, **options)  # (n_best, S + T)
        return tokens[:, inputs["input_ids"].shape[1] :].tolist()  # type: ignore[no-any-return]

    def force(self, annotations: Any, tokens: Tensor) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        (inputs,) = annotations
        prompt = inputs["input_ids"]  # (1, S)
        shape = self.preprocessing.grid(inputs)
        (places,) = torch.where(prompt[0] == self.writer.config.image_token_id)
        if len(places) < prod(shape):
            raise UserError(f"{self!r} has {len(places)} tokens of a photo, not {prod(shape)}")
        with torch.no_grad():
            cache = self.writer(**inputs, use_cache=True, logits_to_keep=1).past_key_values
        cache.crop(-1)
        parameters = inspect.signature(self.writer.forward).parameters
        named = "cache" if "cache" in parameters else "past_key_values"  # Until 5.24.
        fed = torch.cat([prompt[:, -1:], tokens], dim=1)  # (1, 1 + T)
        self.writer.set_attn_implementation("eager")
        try:
            output = self.writer(input_ids=fed, output_attentions=True, **{named: cache})
        finally:
            self.writer.set_attn_implementation("sdpa")
        return output.logits, output.attentions, places[-prod(shape) :].view(shape)
