"""Reads a config of either task, or makes one for photos and captions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from captioner.caption.folder import read_config
from captioner.data.readers import format_of
from captioner.data.table import SUFFIXES
from captioner.errors import UserError
from captioner.files import read_text
from captioner.model_folders import kind_of, model_folder
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_recipe import TASK, TranslationRecipe
from captioner.schema import from_mapping, to_mapping
from captioner.vision.encoders import family_of, make_encoder
from captioner.vision.preprocessing import Preprocessing

CONFIG_SUFFIXES = (".yaml", ".yml", ".json")

FINE_TUNING: dict[str, Any] = {
    "start_from": "default",  # Its sizes, words, encoder, preprocessing and search are the run's.
    "minimum_count": 3,  # of a new word
    "objective": {"doubly_stochastic": 0.0, "label_smoothing": 0.1},  # the packaged model's
    "training": {
        "epochs": 20,  # at most; few photos need more, many stop early
        "batch_size": 8,  # A few hundred captions are then enough steps to learn new words.
        "learning_rate": 2e-4,
        "schedule": "cosine",
        "patience": 5,
    },
}
"""Adapts a model to photos and captions."""


def read_any_recipe(
    path: str | Path, changes: Sequence[str] = ()
) -> CaptioningRecipe | TranslationRecipe:
    """Read and validate a YAML config of a captioner or, with `task: translate`, a translator.

    path: also photos and captions that `format_of` knows, which is `FINE_TUNING` on them.
    changes: see `read_recipe`.
    """
    suffix, format = Path(path).suffix.lower(), format_of(Path(path))
    if format is None and suffix not in (*CONFIG_SUFFIXES, ""):
        raise UserError(
            f"{path} is neither a config ({', '.join(CONFIG_SUFFIXES)}) nor a table "
            f"({', '.join(SUFFIXES)}), nor a folder of photos"
        )
    if format is not None:
        mapping = deepcopy(FINE_TUNING) | {"data": {"format": format, "annotations": str(path)}}
        mapping, where = with_changes(mapping, changes), f"data {path}"
    else:
        mapping, where = read_mapping(path, changes), f"config {path}"
    if not isinstance(mapping, dict) or "task" not in mapping:
        return captioning_recipe(mapping, where)
    if mapping["task"] == TASK:
        return from_mapping(TranslationRecipe, mapping, where)
    raise UserError(
        f"{where}: task {mapping['task']!r} is not {TASK!r}; leave it out for a captioner"
    )


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> CaptioningRecipe:
    """Read and validate a YAML config.

    changes: `section.field=value` overrides, with values in YAML.
    """
    return captioning_recipe(read_mapping(path, changes), f"config {path}")


def captioning_recipe(mapping: Any, where: str) -> CaptioningRecipe:
    """Fill the plain values of a config from its model and its encoder, and validate them."""
    filled = with_encoder_sections(with_model_sections(mapping))
    return from_mapping(CaptioningRecipe, filled, where)


def with_model_sections(mapping: Any) -> Any:
    """Fill the encoder, decoder, preprocessing and search of a config, given as plain values.

    Fields left out come from the model of `start_from`. Those of encoder and preprocessing come
    from the model that `encoder.weights` names. Without a model, or with a file, nothing changes,
    nor does an encoder of another name or a decoder of another kind.
    """
    if not isinstance(mapping, dict):
        return mapping
    encoder = mapping.get("encoder")
    weights = encoder.get("weights") if isinstance(encoder, dict) else None
    names = ["encoder", "preprocessing"]
    if (eyes := _folder_of(weights)) is not None and kind_of(eyes) == "captioner":
        mapping = _with_sections(mapping, eyes, names)
    if (start := _folder_of(mapping.get("start_from"))) is not None:
        mapping = _with_sections(mapping, start, [*names, "decoder", "search"])
    return mapping


def _folder_of(model: Any) -> Path | None:
    """The folder of a model; None for a file, or for something missing, which its reader names."""
    with contextlib.suppress(UserError):
        return model_folder(model) if isinstance(model, str) else None
    return None


def _with_sections(mapping: dict[str, Any], folder: Path, names: list[str]) -> dict[str, Any]:
    model = to_mapping(read_config(folder))
    sections = {name: model[name] for name in names}
    sections["encoder"]["weights"] = str(folder)
    for section, field in (("encoder", "name"), ("decoder", "kind")):
        own = mapping.get(section)
        if isinstance(own, dict) and own.get(field) not in (None, model[section][field]):
            sections.pop(section, None)
    given = {name: mapping.get(name, {}) for name in sections}
    filled = {n: {**sections[n], **own} for n, own in given.items() if isinstance(own, dict)}
    return {**mapping, **filled}


def with_encoder_sections(mapping: Any) -> Any:
    """Fill the preprocessing and `decoder.memory_size` of a config, given as plain values.

    Fields left out are those of the encoder's published weights; `resize_shorter` is in proportion
    to `size`.
    """
    given = mapping if isinstance(mapping, dict) else {}
    encoder: Any = given.get("encoder", {})
    decoder: Any = given.get("decoder", {})
    preprocessing: Any = given.get("preprocessing", {})
    if not all(isinstance(section, dict) for section in (mapping, encoder, decoder, preprocessing)):
        return mapping
    try:
        family = family_of(encoder.get("name", "vgg19"))
    except ValueError:  # Validation names it.
        return mapping
    config = family.config.model_validate({"name": encoder["name"]} if "name" in encoder else {})
    published = family.encoder.published_preprocessing(config)
    own = {} if published is None else to_mapping(published)
    standard, size = published or Preprocessing(), preprocessing.get("size")
    if isinstance(size, int) and preprocessing.get("resize", standard.resize) == "crop":
        own["resize_shorter"] = standard.resize_shorter * size // standard.size
    if own:
        preprocessing = {**own, **preprocessing}
    if "memory_size" not in decoder:
        has_one_size = hasattr(family.encoder, "annotation_size")
        sized = family.encoder if has_one_size else make_encoder(config)
        decoder = {**decoder, "memory_size": sized.annotation_size}
    return {**mapping, "decoder": decoder, "preprocessing": preprocessing}


def read_mapping(path: str | Path, changes: Sequence[str] = ()) -> Any:
    """The plain values of a YAML config with the changes."""
    try:
        mapping = _yaml(read_text(path, "config"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # Also an impossible date.
        mark = getattr(error, "problem_mark", None)
        reason = str(error).partition("\n")[0] if mark is None else f"line {mark.line + 1}"
        raise UserError(f"config {path} is not valid YAML ({reason})") from None
    return with_changes(mapping, changes)


def with_changes(mapping: Any, changes: Sequence[str]) -> Any:
    """The values with the `section.field=value` changes."""
    for change in changes:
        mapping = {} if mapping is None else mapping
        name, equals, text = change.partition("=")
        if not equals or not name:
            raise UserError(f"change {change!r} should read section.field=value")
        try:
            value = _yaml(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            value = text
        *sections, last = name.split(".")
        inner = mapping
        for section in sections:
            inner = inner.setdefault(section, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            raise UserError(f"change {change!r} names a field of something that has none")
        inner[last] = value
    return mapping


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the exponents of YAML 1.2: in YAML 1.1, 4e-4 is text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


def _yaml(text: str) -> Any:
    return yaml.load(text, _Loader)  # A safe loader: plain values only.
