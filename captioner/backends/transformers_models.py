"""Opens captioners of transformers; runs no code of a folder, downloads nothing."""

from __future__ import annotations

import os
from typing import Any

import torch

from captioner.backends.transformers_captions import ProcessorPixels, TransformersCaptions
from captioner.decoding.options import SearchOptions
from captioner.devices import choose_device, choose_precision
from captioner.errors import UserError, refuse_missing
from captioner.files import read_json
from captioner.foreign_models import FAMILIES, GENERATION, check_family, check_weights
from captioner.model_folders import ModelFolder
from captioner.schema import from_mapping

with refuse_missing("captioners of transformers need transformers", "transformers"):
    import transformers

    from captioner.backends.transformers_families import TAKE_APART, FamilyCaptions
    from captioner.backends.vision_language import PROMPTS, PromptedPhotos, VisionLanguageCaptions

NEW_TOKENS = 20  # Of `generate`, where a model names no length.
_LOCAL = {"local_files_only": True, "trust_remote_code": False}


def open_captions(folder: ModelFolder, device: str, precision: str) -> TransformersCaptions:
    """The backend of a folder of transformers."""
    name, kind = str(folder.path), str(folder.config.get("model_type"))
    check_family(folder.config, folder.files, name)
    check_weights(folder.config, folder.files, name)
    dtype, place = choose_precision(precision), choose_device(device)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if kind in PROMPTS:
        processor = transformers.AutoProcessor.from_pretrained(folder.files, **_LOCAL)
        model = _model(folder, dtype, "sdpa").to(place)
        photos = PromptedPhotos(processor, PROMPTS[kind])
        return VisionLanguageCaptions(model, processor.tokenizer, photos)
    processor = transformers.AutoImageProcessor.from_pretrained(folder.files, **_LOCAL)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.files, **_LOCAL)
    model = _model(folder, torch.float32, "eager").to(place)  # Which gives maps.
    family = TAKE_APART[kind](model, tokenizer)
    family.tower.to(dtype)
    return FamilyCaptions(family.writer, tokenizer, ProcessorPixels(processor), family)


def _model(folder: ModelFolder, dtype: torch.dtype, attention: str) -> Any:
    """The model of a folder; refuses weights that are those of another architecture."""
    model, found = getattr(transformers, FAMILIES[folder.config["model_type"]]).from_pretrained(
        folder.files,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation=attention,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        **_LOCAL,
    )
    missing = {name for name in found["missing_keys"] if "pooler" not in name}
    parts = {name for name, _ in model.named_children()}
    unexpected = {name for name in found["unexpected_keys"] if name.partition(".")[0] not in parts}
    resized = {mismatch[0] for mismatch in found["mismatched_keys"]}
    problems = {"lack": missing, "have in another size": resized, "have besides": unexpected}
    for problem, names in problems.items():
        if names:
            other = f"they are of another architecture or vocabulary than a {type(model).__name__}"
            raise UserError(f"{folder.path}: the weights {problem} {min(names)!r}; {other}")
    return model.eval()


def default_search(folder: ModelFolder) -> SearchOptions:
    """The search of a folder's generation config, or else that of `generate`."""
    check_family(folder.config, folder.files, str(folder.path))
    path = folder.files / GENERATION
    given = read_json(path, "generation config") if os.path.isfile(path) else folder.config
    given = {name: value for name, value in dict(given).items() if value is not None}
    tokens = NEW_TOKENS
    if folder.config["model_type"] in PROMPTS:
        tokens = SearchOptions().maximum_length

    def after_start(name: str, default: int) -> Any:
        """A length without the token that starts; `from_mapping` refuses what is no number."""
        value = given.get(name, default + 1)
        return max(value - 1, 0) if isinstance(value, int) else value

    options = {
        "beam": given.get("num_beams", 1),
        "n_best": given.get("num_return_sequences", 1),
        "length_normalisation": given.get("length_penalty", 1.0),
        "minimum_length": given.get("min_new_tokens", after_start("min_length", 0)),
        "maximum_length": given.get("max_new_tokens", after_start("max_length", tokens)),
    }
    return from_mapping(SearchOptions, options, str(path))
