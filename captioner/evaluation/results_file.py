"""Results files: a caption an image in COCO's format, which `captioner caption` writes too."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from captioner.data.example import Example, ImageId, Problems
from captioner.data.table import is_failed, text_records
from captioner.errors import UserError
from captioner.files import write_json
from captioner.vision.shards import PATH_COLUMNS


def read_results(path: str | os.PathLike[str], images: Sequence[Example] = ()) -> dict[str, str]:
    """Read one caption an image, by the image's name as text; other fields are ignored.

    See `text_records`. In tables of `captioner caption`, the names are paths; records of failed
    photos and captions but the best are left out.

    images: a caption of another name is of the only one whose name has the same letters, composed
        or decomposed, or else of the only one with a file so named.
    """
    names = {image.name for image in images}
    alike: defaultdict[str, set[str]] = defaultdict(set)  # Names by their letters, and by files.
    for each in images:
        alike[_composed(each.name)].add(each.name)
        alike[_composed(os.path.basename(f"{each.path}"))].add(each.name)
    source = f"results file {path}"
    problems, captions = Problems(source=source), dict[str, str]()
    for place, record in text_records(Path(path), problems, "results file"):
        where = f"{source}, {place}"
        fields = record if isinstance(record, dict) else {}
        if str(fields.get("rank") or 1) != "1" or is_failed(fields):
            continue
        caption = fields.get("caption")
        image = next((fields[n] for n in ("image_id", *PATH_COLUMNS) if n in fields), None)
        if type(image) not in (int, str) or not isinstance(caption, str):
            raise UserError(
                f"{where} does not have image_id, a whole number or a string, and caption, a string"
            )
        name = str(image)
        if name not in names:
            found = alike[_composed(name)] or alike[_composed(os.path.basename(name))]
            name = min(found) if len(found) == 1 else name
        if name in captions:
            raise UserError(f"{where}: image {image!r} already has a caption")
        captions[name] = caption
    problems.settle()
    if not captions:
        raise UserError(f"{source} is not a list of captions")
    return captions


def _composed(name: str) -> str:
    """The name as tables have it; macOS writes an accent as a character after its letter."""
    return unicodedata.normalize("NFC", name)


def write_results(path: str | os.PathLike[str], captions: Mapping[ImageId, str]) -> None:
    """Write one caption an image, in the mapping's order."""
    write_json(path, [{"image_id": image, "caption": text} for image, text in captions.items()])
