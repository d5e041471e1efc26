"""Captioners of transformers on disk: the known classes, and which of their files are read."""

from pathlib import Path

from captioner.errors import UserError
from captioner.files import JsonObject, refuse_os_errors
from captioner.schema import flat
from captioner.weight_files import weights_header

TRANSFORMERS = "transformers"
FAMILIES = {
    "blip": "BlipForConditionalGeneration",
    "vision-encoder-decoder": "VisionEncoderDecoderModel",
    "git": "GitForCausalLM",
    "florence2": "Florence2ForConditionalGeneration",
    "smolvlm": "SmolVLMForConditionalGeneration",
    "idefics3": "Idefics3ForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "paligemma": "PaliGemmaForConditionalGeneration",
}
"""The classes of captioners, by the `model_type` of their config."""

GENERATION, ADAPTER = "generation_config.json", "adapter_config.json"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")
_TOKENS = ("special_tokens_map.json", "added_tokens.json")
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_VIDEOS = "video_preprocessor_config.json"  # Without it a processor of photos is not made.
COPIED = (GENERATION, *_TOKENIZER, *_TOKENS, *_PROCESSORS, _VIDEOS)
"""What is read of a captioner, besides its config, card and weights."""

SAFETENSORS = ("model*.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model*.bin",)  # Only `captioner convert` reads them.
_POINTER = b"version https://git-lfs"


def check_family(config: JsonObject, files: Path, name: str) -> None:
    """Refuse a folder of transformers that is no known captioner. name: of the model."""
    for path in filter(Path.is_file, sorted(files.iterdir())):
        with refuse_os_errors(f"cannot read {path}"), path.open("rb") as file:
            if file.read(len(_POINTER)) == _POINTER:
                advice = "run git lfs pull in its folder, or copy the file itself"
                raise UserError(f"{path} is a Git LFS pointer, not the file: {advice}")
    if (files / ADAPTER).is_file():
        advice = "merge it into its model by PEFT's merge_and_unload, and save the whole"
        raise UserError(f"{name} is an adapter (LoRA), not a model: {advice}")
    kind = str(config.get("model_type"))
    if kind not in FAMILIES:
        families = ", ".join(FAMILIES)
        raise UserError(f"{name} is no captioner of transformers, which are: {families}")
    if "auto_map" in config:
        native = "florence-community/Florence-2-base, of the native class, brings none"
        raise UserError(f"{name} brings code, which never runs here; {native}")
    named = config.get("architectures")
    if isinstance(named, list) and named and FAMILIES[kind] not in named:
        raise UserError(f"{name} is a {named[0]}; captions need a {FAMILIES[kind]}")


def check_weights(config: JsonObject, files: Path, name: str) -> None:
    """Refuse a captioner of transformers without safetensors, or with more layers than they have.

    name: of the model.
    """
    weights = sorted(files.glob("*.safetensors"))
    if not weights:
        advice = f"captioner convert {name} --out FOLDER makes them of pytorch_model.bin"
        raise UserError(f"{name} has no weights as safetensors; {advice}")
    count = sum(len(weights_header(path)[1]) for path in weights)
    for field, value in flat(config).items():
        is_depth = field.endswith(("layers", "layer", "depth")) and isinstance(value, int)
        if is_depth and value > count:
            held = f"the weights hold {count:,} tensors"
            raise UserError(f"{name}: its config names {value:,} of {field}, and {held}")
