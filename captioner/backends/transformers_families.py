"""Captioners of transformers whose decoder attends to a vision encoder's places.

BLIP, ViT-GPT2 and its like, GIT, Florence-2: which parts compute, and which positions are places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from captioner.arrays import Array
from captioner.backends.transformers_captions import OURS, TransformersCaptions
from captioner.errors import UserError, refuse_errors

FIRST_PLACES = {"vit": 1, "deit": 2}
"""By the encoder's `model_type`: its tokens before the patches, of class and distillation."""

PROMPTS = ("What does the image describe?", "Describe in detail what is shown in the image.")
"""Of Florence-2's tasks <CAPTION>, a short caption, and <DETAILED_CAPTION>."""


@dataclass(frozen=True, eq=False)
class CaptionFamily:
    """A captioner of transformers in parts. M: the positions that its decoder attends to.

    writer: generates; its `generation_config` names the tokens that start and end. tower: the
    vision encoder. patch: pixels, both sides of a place. size: of photos; None for any.
    memory: annotation vectors (B, M, D) -> what the writer takes besides tokens. after: the
    tower's output -> annotation vectors. prompted: annotation vectors, and whether a detailed
    caption is asked for -> those with a prompt behind them. first_place: positions before the
    places. tokens, attentions: the writer's names of these.
    """

    writer: Any
    tower: nn.Module
    patch: int
    size: int | None
    memory: Callable[[Tensor], dict[str, Any]]
    after: Callable[[Tensor], Tensor] | None = None
    prompted: Callable[[Tensor, bool], Tensor] | None = None
    first_place: int = 1
    tokens: str = "decoder_input_ids"
    attentions: str = "cross_attentions"


def blip(model: Any, tokenizer: Any) -> CaptionFamily:
    """BLIP (Li et al. 2022): cross-attention to a ViT's patches, behind one class token."""
    text, vision = model.config.text_config, model.config.vision_config
    writer = model.text_decoder
    # As in `BlipForConditionalGeneration.generate`.
    ends = {"eos_token_id": text.sep_token_id, "pad_token_id": text.pad_token_id}
    writer.generation_config.update(bos_token_id=text.bos_token_id, **ends)

    def memory(annotations: Tensor) -> dict[str, Any]:
        mask = annotations.new_ones(annotations.shape[:-1], dtype=torch.long)  # (B, M)
        return {"encoder_hidden_states": annotations, "encoder_attention_mask": mask}

    size, tower = vision.image_size, model.vision_model
    return CaptionFamily(writer, tower, vision.patch_size, size, memory, tokens="input_ids")


def vision_encoder_decoder(model: Any, tokenizer: Any) -> CaptionFamily:
    """ViT-GPT2 and its like: cross-attention to patches; refuses encoders not listed above."""
    vision = model.config.encoder
    first = FIRST_PLACES.get(vision.model_type)
    if first is None:
        known = ", ".join(FIRST_PLACES)
        raise UserError(f"maps of the encoder {vision.model_type!r} are unknown; known are {known}")
    return CaptionFamily(
        model, model.encoder, vision.patch_size, vision.image_size, _encoded, first_place=first
    )


def git(model: Any, tokenizer: Any) -> CaptionFamily:
    """GIT (Wang et al. 2022): self-attention to the image's tokens, behind one class token."""
    vision, tower = model.config.vision_config, model.git.image_encoder
    model.git.image_encoder = _Given()  # So that a photo is encoded once.
    return CaptionFamily(
        model,
        tower,
        vision.patch_size,
        vision.image_size,
        lambda annotations: {"pixel_values": annotations[:, None]},  # (B, 1, M, D)
        tokens="input_ids",
        attentions="attentions",
    )


def florence(model: Any, tokenizer: Any) -> CaptionFamily:
    """Florence-2 (Xiao et al. 2023), the native class: cross-attention to encoded places.

    Its encoder mixes the places with each other and with the prompt before the decoder attends.
    The mean of all places stands before them, the prompt behind.
    """

    def prompted(places: Tensor, is_detailed: bool) -> Tensor:
        text = f"{tokenizer.bos_token}{PROMPTS[is_detailed]}{tokenizer.eos_token}"
        tokens = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])  # (1, P)
        words = model.get_input_embeddings()(tokens.to(places.device))  # (1, P, D)
        inputs = torch.cat([places, words.expand(len(places), -1, -1)], dim=1)  # (B, M, D)
        return model.model.language_model.encoder(inputs_embeds=inputs).last_hidden_state  # type: ignore[no-any-return]

    tower, patch = model.model.vision_tower, prod(model.config.vision_config.patch_stride)
    project = model.model.multi_modal_projector  # -> (B, 1 + L, D)
    return CaptionFamily(model, tower, patch, None, _encoded, project, prompted)


def _encoded(annotations: Tensor) -> dict[str, Any]:
    return {"encoder_outputs": BaseModelOutput(last_hidden_state=annotations)}


class _Given(nn.Module):
    """Stands in for GIT's vision encoder: what it gives comes as pixels, (B, 1, M, D)."""

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=pixel_values.squeeze(1))  # (B, M, D)


TAKE_APART: dict[str, Callable[[Any, Any], CaptionFamily]] = {
    "blip": blip,
    "vision-encoder-decoder": vision_encoder_decoder,
    "git": git,
    "florence2": florence,
}
"""By the `model_type` of a config: what takes the model apart, given its tokenizer."""


@dataclass(repr=False, eq=False)
class FamilyCaptions(TransformersCaptions):
    """The `CaptionBackend` of a family; `writer` is the family's."""

    family: CaptionFamily

    def __post_init__(self) -> None:
        super().__post_init__()
        family = self.family
        shape = self.preprocessing.pixels(Image.new("RGB", (64, 48))).shape[1:]
        if min(shape) < family.patch or family.size not in (None, *shape) or len({*shape}) > 1:
            given, needed = "x".join(map(str, shape)), family.size or family.patch
            raise UserError(f"photos of {given} pixels do not fit the vision encoder's {needed}")
        self.map_shape = shape[0] // family.patch, shape[1] // family.patch
        is_apart = family.tokens == "decoder_input_ids"
        self._starts = self._tokens_named("decoder_start_token_id" if is_apart else "bos_token_id")
        if self.writer.generation_config.forced_bos_token_id is not None:
            self._starts = self._starts + self._tokens_named("forced_bos_token_id")

    @property
    def lacks(self) -> Sequence[str]:
        return OURS if self.family.prompted else super().lacks

    @torch.no_grad()
    def encode(self, pixels: Array) -> Tensor:
        """Pixels (B, 3, size, size), float32 -> annotation vectors (B, M, D).

        M: the L places of a map, and the positions before them.
        """
        family = self.family
        photos = torch.from_numpy(pixels).to(self.device, next(family.tower.parameters()).dtype)
        with refuse_errors(f"transformers cannot caption with {self!r}"):
            states = family.tower(photos).last_hidden_state.float()
            annotations = family.after(states) if family.after else states
        expected = family.first_place + prod(self.map_shape)
        count = annotations.shape[1]
        if count != expected:
            raise UserError(f"the vision encoder of {self!r} gives {count} places, not {expected}")
        return annotations

    @torch.no_grad()
    def prompted(self, annotations: Tensor, is_detailed: bool = False) -> Tensor:
        """Annotation vectors (B, M, D), in which a prompt may be behind the places."""
        if self.family.prompted is None:
            return annotations
        return self.family.prompted(annotations, is_detailed)

    def most_tokens(self, annotations: Tensor) -> int:
        places: int = self.writer.config.get_text_config(decoder=True).max_position_embeddings
        for name, module in self.writer.named_modules():
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None):
                places -= module.padding_idx + 1  # RoBERTa's begin behind its padding.
        return places - len(self._starts)

    def generate(self, annotations: Tensor, options: dict[str, Any]) -> list[list[int]]:
        starts = torch.tensor([self._starts[:1]] * len(annotations), device=self.device)  # (B, 1)
        given = {self.family.tokens: starts, **self.family.memory(annotations)}
        tokens = self.writer.generate(**given, **options)  # (B n_best, P + T)
        return tokens[:, len(self._starts) :].tolist()  # type: ignore[no-any-return]

    def force(
        self, annotations: Tensor, tokens: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        family, starts = self.family, tokens.new_tensor([self._starts]).expand(len(tokens), -1)
        memory = annotations.detach().requires_grad_(torch.is_grad_enabled())
        output = self.writer(
            output_attentions=True,
            use_cache=False,
            **{family.tokens: torch.cat([starts, tokens], dim=1)},  # (B, P + T)
            **family.memory(memory),
        )
        places = torch.arange(prod(self.map_shape)).view(self.map_shape) + family.first_place
        return output.logits, output[family.attentions], places
