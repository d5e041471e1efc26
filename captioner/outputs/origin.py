"""Where captions come from, as records have it; a resumed table holds those of one origin."""

import hashlib
from collections.abc import Sequence

import captioner
from captioner.caption.config import captioner_config
from captioner.errors import UserError
from captioner.files import JsonObject, read_bytes
from captioner.model_folders import ModelFolder, model_folder
from captioner.outputs.options import CaptionSource
from captioner.outputs.record import PhotoRecord
from captioner.schema import to_mapping
from captioner.text.languages import ENGLISH

_FREE = {"without": "", "begin": "", "language": ENGLISH}
"""What a record without these fields has."""


def origin_of(source: CaptionSource) -> JsonObject:
    """Fields of records: the model, digests of weights, the search and the version."""
    origin: JsonObject = {"model": source.model, "version": captioner.__version__}
    try:
        folder = ModelFolder(model_folder(source.model))
    except UserError:  # From Python, a model may have any name.
        return origin
    origin["digest"] = folder.digest
    origin["search"] = to_mapping(captioner_config(folder).search.override(**source.search))
    if source.calibration:
        content = read_bytes(source.calibration, "calibration")
        origin["calibration"] = hashlib.sha256(content).hexdigest()
    if source.translator:
        origin["translator"] = ModelFolder(model_folder(source.translator)).digest
    return origin


def check_origin(record: PhotoRecord, origin: JsonObject, names: Sequence[str], path: str) -> None:
    """Refuse a record of a table that differs from a run's in these search options, or model."""
    saved = record.saved or {}
    known = "digest" if "digest" in saved else "model"
    was, now = ({**_FREE, **each.get("search", {}), **each} for each in (saved, origin))
    names = [known, "translator", "calibration", "language", "without", "begin", *names]
    differing = [name for name in names if was.get(name) != now.get(name)]
    if differing and not record.error:
        shown = ["model", *differing]
        of_table, of_run = (
            ", ".join(f"{name} {each.get(name)!s:.40}" for name in shown) for each in (was, now)
        )
        advice = f"{of_table} and of {of_run}: give another file, or --resume-any"
        raise UserError(f"--jsonl {path} and this run have captions of {advice}")
