"""The families of transformers' captioners: which parts compute, and which positions are places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from captioner.errors import UserError

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


FAMILIES = {
    "blip": ("BlipForConditionalGeneration", blip),
    "vision-encoder-decoder": ("VisionEncoderDecoderModel", vision_encoder_decoder),
    "git": ("GitForCausalLM", git),
    "florence2": ("Florence2ForConditionalGeneration", florence),
}
"""By the `model_type` of a config: the class in transformers, and what takes it apart."""
