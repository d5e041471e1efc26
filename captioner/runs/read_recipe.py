"""Reads a config of either task, or makes one for photos and captions."""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from captioner.caption.config import ModelConfig
from captioner.data.readers import format_of
from captioner.data.table import KNOWN
from captioner.errors import UserError
from captioner.files import Json, JsonObject, read_text
from captioner.model_folders import ModelFolder, model_folder
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_task import TASK, TranslationRecipe
from captioner.schema import from_mapping, shown, to_mapping
from captioner.vision.encoder_config import EncoderConfig
from captioner.vision.encoder_families import ENCODERS, make_encoder

FINE_TUNING = Path(__file__).with_name("fine_tuning.yaml")
"""Adapts a model to photos and captions."""


def read_any_recipe(
    path: str | Path, changes: Sequence[str] = ()
) -> CaptioningRecipe | TranslationRecipe:
    """Read and validate a YAML config of a captioner or, with `task: translate`, a translator.

    path: also photos and captions, for `FINE_TUNING`. changes: see `read_recipe`.
    """
    format = format_of(Path(path))
    if format is not None:
        mapping = read_mapping(FINE_TUNING)
        mapping["data"] = {"format": format, "annotations": str(path)}
        return captioning_recipe(with_changes(mapping, changes), f"data {path}")
    suffix = Path(path).suffix.lower()
    is_config = suffix in (".yaml", ".yml", ".json", "")
    mapping = read_mapping(path, changes) if is_config else {}
    fields = mapping if isinstance(mapping, dict) else {}
    if suffix == ".json":
        is_config = not fields.keys().isdisjoint({*CaptioningRecipe.model_fields, "task"})
    if not is_config:
        kinds = f"a config (.yaml, .yml, .json) nor captions: these are {KNOWN}"
        raise UserError(f"{path} is neither {kinds}")
    where, task = f"config {path}", fields.get("task")
    if task == TASK:
        return from_mapping(TranslationRecipe, mapping, where)
    if task is not None:
        needed = f"is not {TASK!r}; leave it out for a captioner"
        raise UserError(f"{where}: task {shown(task)} {needed}")
    return captioning_recipe(mapping, where)


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> CaptioningRecipe:
    """Read and validate a YAML config with changes `section.field=value`, also YAML."""
    return captioning_recipe(read_mapping(path, changes), f"config {path}")


def captioning_recipe(mapping: object, where: str) -> CaptioningRecipe:
    """Fill the plain values of a config from its model and its encoder, and validate them."""
    names = "encoder", "decoder", "preprocessing", "search"
    if isinstance(mapping, dict) and all(isinstance(mapping.get(n, {}), dict) for n in names):
        mapping = with_encoder_sections(with_model_sections(mapping))
    return from_mapping(CaptioningRecipe, mapping, where)


def with_model_sections(mapping: JsonObject) -> JsonObject:
    """Fill the encoder, decoder, preprocessing and search of a config, given as plain values.

    Fields left out come from the model of `start_from`, or of `encoder.weights`; not those of an
    encoder of another name or a decoder of another kind.
    """
    weights = mapping.get("encoder", {}).get("weights")
    of_encoder = ["encoder", "preprocessing"]
    of_start = [*of_encoder, "decoder", "search"]
    for source, sections in ((weights, of_encoder), (mapping.get("start_from"), of_start)):
        if not isinstance(source, str):
            continue
        with contextlib.suppress(UserError):  # Its reader reports what is missing.
            folder = ModelFolder(model_folder(source))
            model = to_mapping(folder.read("captioner", ModelConfig))
            model["encoder"]["weights"] = str(folder.path)
            for name in sections:
                section = mapping.get(name, {})
                field = {"encoder": "name", "decoder": "kind"}.get(name)
                if field is None or section.get(field) in (None, model[name][field]):
                    mapping = {**mapping, name: {**model[name], **section}}
    return mapping


def with_encoder_sections(mapping: JsonObject) -> JsonObject:
    """Fill the preprocessing and `decoder.memory_size` of a config from its encoder's weights.

    `resize_shorter` is in proportion to `size`.
    """
    sections = "encoder", "decoder", "preprocessing"
    encoder, decoder, preprocessing = (mapping.get(name, {}) for name in sections)
    try:
        config = EncoderConfig.of_kind({key: encoder[key] for key in encoder if key == "name"})
    except ValueError:  # Validation names it.
        return mapping
    family = ENCODERS[type(config)]
    published = family.published_preprocessing(config)
    defaults = to_mapping(published)
    size = preprocessing.get("size")
    if isinstance(size, int) and preprocessing.get("resize", published.resize) == "crop":
        defaults["resize_shorter"] = published.resize_shorter * size // published.size
    if "memory_size" not in decoder:
        sized = family if hasattr(family, "annotation_size") else make_encoder(config)
        decoder = {**decoder, "memory_size": sized.annotation_size}
    return {**mapping, "decoder": decoder, "preprocessing": {**defaults, **preprocessing}}


def read_mapping(path: str | Path, changes: Sequence[str] = ()) -> Json:
    """The plain values of a YAML config with the changes."""
    try:
        mapping = yaml.load(read_text(path, "config"), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # Also an impossible date.
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        reason = reason if mark is None else f"line {mark.line + 1}: {reason}"
        language = "JSON" if Path(path).suffix.lower() == ".json" else "YAML"
        raise UserError(f"{path} is not valid {language} ({reason})") from None
    return with_changes(mapping, changes)


def with_changes(mapping: Json, changes: Sequence[str]) -> Json:
    """The values with the `section.field=value` changes."""
    for change in changes:
        mapping = mapping or {}
        name, equals, text = change.partition("=")
        if not equals or not name:
            raise UserError(f"change {shown(change)} should read section.field=value")
        try:
            value = yaml.load(text, _Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            value = text
        sections = name.split(".")
        last = sections.pop()
        inner = mapping
        for section in sections:
            inner = inner.setdefault(section, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            raise UserError(f"change {shown(change)} names a field of something that has none")
        inner[last] = value
    return mapping


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with two rules of YAML 1.2, and without aliases.

    4e-4 is a number, in YAML 1.1 a text; and no mapping has a key twice, of which PyYAML drops the
    first. A few lines of aliases of aliases are a value of 10^12 parts.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"the alias *{event.anchor[:40]} is not read; write its value"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: dict[str, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names = set()
        for key, _ in node.value:
            if str(key.value) in names:
                problem = f"{shown(key.value)} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            names.add(str(key.value))
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)
