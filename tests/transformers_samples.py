"""Tiny captioners of transformers with random weights, one of each family."""

from pathlib import Path
from typing import Any

import torch

SIZE, PATCH = 32, 8
WORDS = "a man dog cat red ball runs sits on the in grass with two and 's holding photo of street"
CHARACTERS = "abcdefghijklmnopqrstuvwxyz"
FAMILIES = ("blip", "vision-encoder-decoder", "git", "florence2")


def word_pieces() -> Any:
    """A BERT tokenizer of whole words, letters and ##letters."""
    from transformers import BertTokenizer

    letters = [*CHARACTERS, *(f"##{letter}" for letter in CHARACTERS)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = dict.fromkeys([*special, *WORDS.split(), *letters, "[DEC]"])
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate(words)})
    tokenizer.add_special_tokens({"bos_token": "[DEC]"})
    return tokenizer


def byte_pairs(special: list[str], **named: Any) -> Any:
    """A byte-level BPE tokenizer; its special tokens stand first."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = ByteLevelBPETokenizer()
    sentences = [f"A {' '.join(WORDS.split()[place:])}." for place in range(12)] * 3
    trained.train_from_iterator(sentences, vocab_size=320, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **named)


def _vit(**more: Any) -> dict[str, Any]:
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return {"hidden_size": 16, **layers, "image_size": SIZE, "patch_size": PATCH, **more}


def _text(tokenizer: Any, **more: Any) -> dict[str, Any]:
    layers = {"num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
    return {"vocab_size": len(tokenizer), "hidden_size": 16, **layers, **more}


def _blip() -> tuple[Any, Any, Any]:
    import transformers as tf

    tokenizer = word_pieces()
    ends = {
        "pad_token_id": 0,
        "sep_token_id": 3,
        "eos_token_id": 3,
        "bos_token_id": len(tokenizer) - 1,
    }
    text = _text(tokenizer, encoder_hidden_size=16, max_position_embeddings=64, **ends)
    config = tf.BlipConfig(text_config=text, vision_config=_vit(), projection_dim=16)
    side = {"height": SIZE, "width": SIZE}
    return tf.BlipForConditionalGeneration(config), tokenizer, tf.BlipImageProcessor(size=side)


def _vit_gpt2() -> tuple[Any, Any, Any]:
    import transformers as tf

    tokenizer = byte_pairs([end := "<|endoftext|>"], bos_token=end, eos_token=end)
    decoder = tf.GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=4, n_head=2,
        bos_token_id=0, eos_token_id=0, add_cross_attention=True, is_decoder=True,
    )  # fmt: skip
    config = tf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        tf.ViTConfig(**_vit()), decoder
    )
    model = tf.VisionEncoderDecoderModel(config)
    generation = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 0}
    model.generation_config = tf.GenerationConfig(**generation, max_length=12, num_beams=3)
    side = {"height": SIZE, "width": SIZE}
    return model, tokenizer, tf.ViTImageProcessor(size=side)


def _git() -> tuple[Any, Any, Any]:
    import transformers as tf

    tokenizer = word_pieces()
    ends = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    text = _text(tokenizer, max_position_embeddings=64, **ends)
    model = tf.GitForCausalLM(tf.GitConfig(vision_config=_vit(), **text))
    crop = {"height": SIZE, "width": SIZE}
    return model, tokenizer, tf.CLIPImageProcessor(size={"shortest_edge": SIZE}, crop_size=crop)


def _florence() -> tuple[Any, Any, Any]:
    import transformers as tf

    named = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    extra = {"image_token": "<image>"}
    tokenizer = byte_pairs([*named.values(), "<image>"], **named, extra_special_tokens=extra)
    ends = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    text = tf.BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=2, decoder_layers=4,
        encoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, decoder_ffn_dim=32, **ends,
        max_position_embeddings=64, forced_bos_token_id=None, forced_eos_token_id=None,
    )  # fmt: skip
    vision = tf.Florence2VisionConfig(
        embed_dim=[8, 8, 16, 16], num_heads=[2] * 4, num_groups=[2] * 4, depths=[1] * 4,
        patch_stride=[4, 2, 1, 1], window_size=4, projection_dim=16,
    )  # fmt: skip
    config = tf.Florence2Config(
        text_config=text.to_dict(), vision_config=vision.to_dict(), image_token_id=4, **ends
    )
    model = tf.Florence2ForConditionalGeneration(config)
    start = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 0}
    model.generation_config = tf.GenerationConfig(
        **start, max_length=12, num_beams=3, no_repeat_ngram_size=3, forced_bos_token_id=0
    )
    side = {"height": SIZE, "width": SIZE}
    return model, tokenizer, tf.CLIPImageProcessor(size=side, do_center_crop=False)


_MAKERS = dict(zip(FAMILIES, (_blip, _vit_gpt2, _git, _florence), strict=True))


def save_tiny(family: str, folder: Path, seed: int = 0) -> Any:
    """Save a model of a family with its tokenizer and image processor; returns the model.

    Its weights are large, so that photos make a difference.
    """
    torch.manual_seed(seed)
    model, tokenizer, processor = _MAKERS[family]()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                is_word = "word_emb" in name or "wte" in name or "shared" in name
                weights.normal_(std=0.15 if is_word else 0.9)
    for part in (model.eval(), tokenizer, processor):
        part.save_pretrained(folder)
    return model
