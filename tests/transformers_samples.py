"""Tiny captioners of transformers with random weights, one of each family."""

from pathlib import Path
from typing import Any

import torch

SIDE = {"height": 32, "width": 32}
SMALL = {
    **{"num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32},
    **{"hidden_size": 16, "image_size": 32, "patch_size": 8, "max_position_embeddings": 64},
}
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a man dog cat red ball runs sits on the in 's holding ##s"


def _word_pieces() -> tuple[Any, dict[str, Any]]:
    """A tokenizer of BERT's kind, and a text config for it."""
    from transformers import BertTokenizer

    letters = [f"{begun}{letter}" for begun in ("", "##") for letter in "bcdefghijklmn"]
    words = [*WORDS.split(), *letters, "[DEC]"]
    vocabulary = {word: place for place, word in enumerate(words)}
    tokenizer = BertTokenizer(vocab=vocabulary, bos_token="[DEC]")
    return tokenizer, {**SMALL, "vocab_size": len(words), "pad_token_id": 0, "eos_token_id": 3}


def _bytes(**named: Any) -> Any:
    """A tokenizer of GPT-2's kind without merges; the special tokens stand first."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import GPT2Tokenizer

    special = ["<s>", "<pad>", "</s>", "<image>"]
    vocabulary = {text: place for place, text in enumerate([*special, *ByteLevel.alphabet()])}
    named |= {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return GPT2Tokenizer(vocab=vocabulary, merges=[], unk_token="<pad>", **named)


def _parts(family: str) -> tuple[Any, ...]:
    """A model, its tokenizer and its image processor."""
    import transformers as tf

    squash = tf.ViTImageProcessor(size=SIDE)
    ends = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    if family == "blip":
        tokenizer, text = _word_pieces()
        text |= {"encoder_hidden_size": 16, "sep_token_id": 3, "bos_token_id": len(tokenizer) - 1}
        config = tf.BlipConfig(text_config=text, vision_config=SMALL, projection_dim=16)
        return tf.BlipForConditionalGeneration(config), tokenizer, tf.BlipImageProcessor(size=SIDE)
    if family == "git":
        tokenizer, text = _word_pieces()
        config = tf.GitConfig(vision_config=SMALL, **text, bos_token_id=2)
        crop = {"size": {"shortest_edge": 32}, "crop_size": SIDE}
        return tf.GitForCausalLM(config), tokenizer, tf.CLIPImageProcessor(**crop)
    tokenizer = _bytes(extra_special_tokens={"image_token": "<image>"})
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 96}
    if family == "florence2":
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
        layers = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 4, **heads}
        text = tf.BartConfig(**sizes, **layers, **ends, encoder_ffn_dim=32, decoder_ffn_dim=32)
        stages = {"num_heads": [2] * 4, "num_groups": [2] * 4, "depths": [1] * 4}
        strides = {"patch_stride": [4, 2, 1, 1], "window_size": 4, "projection_dim": 16}
        vision = {"embed_dim": [8, 8, 16, 16], **stages, **strides}
        parts = {"text_config": text.to_dict(), "vision_config": vision}
        config = tf.Florence2Config(**parts, image_token_id=3)
        model = tf.Florence2ForConditionalGeneration(config)
        ends |= {"no_repeat_ngram_size": 3, "forced_bos_token_id": 0}
    else:
        decoder = tf.GPT2Config(**sizes, n_embd=16, n_layer=4, n_head=2, add_cross_attention=True)
        encoder = tf.ViTModel(tf.ViTConfig(**SMALL))
        model = tf.VisionEncoderDecoderModel(None, encoder, tf.GPT2LMHeadModel(decoder))
    model.generation_config = tf.GenerationConfig(**ends, max_length=12, num_beams=3)
    return model, tokenizer, squash


def save_tiny(family: str, folder: Path) -> None:
    """Save a model of a family, with weights so large that photos make a difference."""
    torch.manual_seed(0)
    model, tokenizer, processor = _parts(family)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                is_word = "word_emb" in name or "wte" in name or "shared" in name
                weights.normal_(std=0.15 if is_word else 0.9)
            elif len(weights) == len(tokenizer):  # A bias of BERT's, against special tokens.
                weights[[0, 1, 2, 4, -1]] = -20
    for part in (model.eval(), tokenizer, processor):
        part.save_pretrained(folder)
