"""COCO's files of captions and of instances, for photos called by number."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_captions(
    path: Path, captions: Mapping[int, Sequence[str]], file_name: str = "{}.png"
) -> Path:
    """Write the captions of each photo, numbered in order."""
    pairs = [(number, text) for number, texts in captions.items() for text in texts]
    document = {
        "info": {},
        "images": [{"id": number, "file_name": file_name.format(number)} for number in captions],
        "annotations": [
            {"id": place, "image_id": number, "caption": text}
            for place, (number, text) in enumerate(pairs)
        ],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_instances(
    path: Path,
    things: Mapping[int, Sequence[str]],
    categories: Sequence[str],
    size: tuple[int, int] = (9, 9),
    box: Sequence[int] | None = None,
    file_name: str = "{}.png",
) -> Path:
    """Write what is in each photo, all of it in one box, by default the whole photo."""
    pairs = [(number, name) for number, names in things.items() for name in names]
    numbers = {name: number for number, name in enumerate(categories, start=1)}
    document = {
        "images": [
            {"id": n, "file_name": file_name.format(n), "width": size[0], "height": size[1]}
            for n in things
        ],
        "annotations": [
            {
                **{"id": place, "image_id": number, "category_id": numbers[name]},
                **{"bbox": list(box or (0, 0, *size)), "iscrowd": 0},
            }
            for place, (number, name) in enumerate(pairs)
        ],
        "categories": [{"id": number, "name": name} for name, number in numbers.items()],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
