"""Where captions come from, as records have it; a table holds those of one origin."""

import hashlib
import os
from collections.abc import Callable, Mapping

import captioner
from captioner.caption.config import captioner_config
from captioner.errors import UserError
from captioner.files import JsonObject, read_bytes
from captioner.model_folders import ModelFolder, model_folder
from captioner.outputs.options import CaptionSource
from captioner.outputs.record import Origin, PhotoRecord
from captioner.schema import to_mapping
from captioner.text.languages import ENGLISH

_FREE: JsonObject = {"without": "", "begin": "", "calibration": None, "language": ENGLISH}
"""What a record without these fields has."""


def origin_of(source: CaptionSource) -> Origin:
    """The digests of weights, the search and the version of a run's captions."""
    origin: JsonObject = {"model": source.model, "version": captioner.__version__}
    try:
        folder = ModelFolder(model_folder(source.model))
    except UserError:  # From Python, a model may have any name.
        return Origin(**origin)
    origin["digest"] = folder.digest
    origin["search"] = to_mapping(captioner_config(folder).search.override(**source.search))
    if source.calibration:
        content = read_bytes(source.calibration, "calibration")
        origin["calibration"] = hashlib.sha256(content).hexdigest()
    if source.translator:
        origin["translator"] = ModelFolder(model_folder(source.translator)).digest
    return Origin(**origin)


def origin_check(path: str, source: CaptionSource, origin: Origin) -> Callable[[PhotoRecord], None]:
    """A function that refuses a record of a table whose caption has another origin."""
    now = {**_FREE, **source.search, **_fields(origin), "language": source.language or ENGLISH}
    names = ["digest", "translator", *(_FREE | source.search)]

    def check(record: PhotoRecord) -> None:
        was = {**_FREE, **_fields(record)}
        differing = [name for name in names if name in was and was[name] != now.get(name)]
        is_named_so = os.path.normpath(was["model"]) == os.path.normpath(now["model"])
        if differing or ("digest" not in was and not is_named_so):
            raise UserError(
                f"--jsonl {path} has captions of {_named(was, differing)}; this run's are of "
                f"{_named(now, differing)}: give another file, or --resume-any"
            )

    return check


def _fields(origin: Origin) -> JsonObject:
    fields = (*Origin.model_fields, "language")
    given = {name: getattr(origin, name) for name in fields if name in origin.model_fields_set}
    return {**origin.search, **given}


def _named(origin: Mapping[str, object], names: list[str]) -> str:
    """What captions come from, with these fields."""
    details = [f"{name} {origin.get(name) or 'none'!s:.40}" for name in names if name != "language"]
    noted = f" ({', '.join(details)})" if details else ""
    return f"the model {origin['model']} in the language {origin['language']}{noted}"
