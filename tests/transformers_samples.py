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


def _bytes(*added: str, **named: Any) -> Any:
    """A tokenizer of GPT-2's kind without merges; the special tokens stand first."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import GPT2Tokenizer

    letters = sorted(ByteLevel.alphabet())
    texts = ["<s>", "<pad>", "</s>", "<image>", *added, *letters]
    vocabulary = {text: place for place, text in enumerate(texts)}
    if added:
        named["extra_special_tokens"] = ["<image>", *added]
    named |= {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return GPT2Tokenizer(vocab=vocabulary, merges=[], unk_token="<pad>", **named)


def _parts(family: str) -> tuple[Any, ...]:
    """A model, its tokenizer and its image processor."""
    import transformers as tf

    if family in ("qwen2_5_vl", "paligemma", "idefics3", "smolvlm"):
        model, processor = _vision_language(family)
        model.generation_config = tf.GenerationConfig(
            bos_token_id=0, pad_token_id=1, eos_token_id=2
        )
        return model, processor.tokenizer, processor
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
        writer = tf.GPT2LMHeadModel(decoder)
        if family == "roberta":
            decoder = {**SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 34}
            named = {"is_decoder": True, "add_cross_attention": True, "pad_token_id": 1}
            writer = tf.RobertaForCausalLM(tf.RobertaConfig(**decoder, **named))
        encoder = tf.ViTModel(tf.ViTConfig(**SMALL))
        if family == "deit":  # Its own processor crops.
            encoder = tf.DeiTModel(tf.DeiTConfig(**SMALL))
            squash = tf.DeiTImageProcessor(size={"height": 40, "width": 40}, crop_size=SIDE)
        model = tf.VisionEncoderDecoderModel(None, encoder, writer)
    model.generation_config = tf.GenerationConfig(**ends, max_length=12, num_beams=3)
    return model, tokenizer, squash


TEXT = {
    **{"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512},
    **{"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
}
VISION = {"hidden_size": 16, "intermediate_size": 32, "image_size": 32, "patch_size": 8}
VISION |= {"num_hidden_layers": 2, "num_attention_heads": 2}
QWEN = [f"<|{name}|>" for name in ("video_pad", "vision_start", "vision_end", "im_start", "im_end")]
SMOLVLM = ["<fake_token_around_image>", "<global-img>", "<|im_start|>", "<end_of_utterance>"]
TILES = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}


def _vision_language(family: str) -> tuple[Any, Any]:
    """A vision-language model and its processor."""
    import transformers as tf

    if family == "qwen2_5_vl":
        tokenizer = _bytes("<|image_pad|>", *QWEN)
        ids = {"vision_start_token_id": 6, "vision_end_token_id": 7, "video_token_id": 5}
        rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
        text = {**TEXT, "vocab_size": len(tokenizer), "rope_parameters": rope}
        vision = {"depth": 2, "num_heads": 2, "window_size": 32, "fullatt_block_indexes": [1]}
        vision |= {"hidden_size": 16, "intermediate_size": 32, "patch_size": 8}
        vision |= {"out_hidden_size": 32}
        config = tf.Qwen2_5_VLConfig(
            text_config=text, vision_config=vision, image_token_id=4, **ids
        )
        size = {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}
        images = tf.Qwen2VLImageProcessor(patch_size=8, size=size)
        videos = tf.Qwen2VLVideoProcessor(patch_size=8)
        processor = tf.Qwen2_5_VLProcessor(images, tokenizer, videos)
        return tf.Qwen2_5_VLForConditionalGeneration(config), processor
    if family == "paligemma":
        tokenizer = _bytes(extra_special_tokens={"image_token": "<image>"})
        images = tf.SiglipImageProcessor(size=SIDE)
        images.image_seq_length = 16
        processor = tf.PaliGemmaProcessor(images, tokenizer)  # It adds tokens.
        sizes = {"vocab_size": len(tokenizer), "hidden_size": 32}
        config = tf.PaliGemmaConfig(
            text_config=tf.GemmaConfig(**TEXT, head_dim=8, vocab_size=len(tokenizer)),
            vision_config=tf.SiglipVisionConfig(**VISION),
            image_token_index=3,
            projection_dim=32,
            **sizes,
        )
        return tf.PaliGemmaForConditionalGeneration(config), processor
    tokenizer = _bytes(*SMOLVLM)
    name = "SmolVLM" if family == "smolvlm" else "Idefics3"
    config = getattr(tf, f"{name}Config")(
        text_config=tf.LlamaConfig(**TEXT, vocab_size=len(tokenizer)),
        vision_config=VISION,
        image_token_id=3,
        scale_factor=2,
    )
    parts = [getattr(tf, f"{name}ImageProcessor")(**TILES), tokenizer]
    if family == "smolvlm":
        sampling = {"fps": 1, "max_frames": 4, "video_size": {"longest_edge": 32}}
        parts.append(tf.SmolVLMVideoProcessor(**TILES, video_sampling=sampling))
    processor = getattr(tf, f"{name}Processor")(*parts, image_seq_len=4)
    return getattr(tf, f"{name}ForConditionalGeneration")(config), processor


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
