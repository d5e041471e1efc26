"""Write the captions of both worlds, and what the detector sees, as `captioner train` reads them.

`people.jsonl` has people's captions: `train` of both worlds, `flickr` and `everyday` for
validation. `all.jsonl` has in `train` also those that `pseudo_captions.py` finds for photos that
nobody captioned. How well it finds them is measured on the photos of `everyday`, whose own captions
it does not see, and kept in `evaluation.json`. `validation.jsonl` has, as `val`, the photos of both
worlds by which the best epoch is chosen (Flickr8k's first 300). `instances.json` has the boxes of
all these photos in COCO's format. What the detector sees is kept, and the scales of
`teachers.TeacherMaps`.

  python scripts/default_model/tables.py --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --out runs/tables
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import photos as worlds
import pseudo_captions
import torch
from distill import VALIDATION_PHOTOS, detect, sample
from global_features import global_features
from PIL import Image
from teachers import SCALES, Boxes, Detector, TeacherMaps, add_precision
from torch import Tensor

from captioner.cli.program import run_program
from captioner.evaluation.captions import evaluate_captions
from captioner.files import write_json, write_text
from captioner.text.tokenizer import tokenize

CAPTIONS_EACH = 3
"""Pseudo-captions of a photo."""

SURE = 0.4
"""Detections below it are not in `instances.json`."""


class Row(NamedTuple):
    """A photo, one of its captions, and the split."""

    image: Path
    caption: str
    split: str


def true_rows(folders: worlds.Folders) -> Iterator[Row]:
    """People's captions, as rows of the table."""
    for split, name in (("train", "train"), ("val", "flickr")):
        for photo, texts in folders.flickr_captions(split).items():
            for caption in texts:
                yield Row(photo, one_spelling(caption) if name == "train" else caption, name)
    for photo, captions in folders.everyday_captions("train").items():
        for caption in captions * worlds.CAPTION_COPIES:
            yield Row(photo, one_spelling(caption), "train")
    for photo, captions in folders.everyday_captions("val").items():
        for caption in captions:
            yield Row(photo, caption, "everyday")


def one_spelling(caption: str) -> str:
    """Spell "close-up" as "close up": a model that knows both says "a close up of a close-up"."""
    return re.sub(r"\bclose-?up\b", "close up", caption, flags=re.IGNORECASE)


def validation_rows(folders: worlds.Folders, rows: Sequence[Row]) -> Iterator[Row]:
    """The rows of the photos by which the best epoch is chosen."""
    few = set(folders.flickr_photos("val")[:VALIDATION_PHOTOS])
    for row in rows:
        if row.split == "everyday" or row.image in few:
            yield row._replace(split="val")


def write_table(file: Path, rows: Iterable[Row]) -> None:
    """Write a table in JSONL; whole or not at all."""
    lines = (
        json.dumps({"image": str(row.image.resolve()), "caption": row.caption, "split": row.split})
        for row in rows
    )
    write_text(file, "\n".join(lines) + "\n")


def write_instances(file: Path, boxes: dict[Path, Boxes], classes: Sequence[str]) -> None:
    """Write what the detector is sure of in photos, in COCO's format."""
    images, annotations = [], []
    for number, (photo, (labels, scores, corners)) in enumerate(boxes.items(), start=1):
        with Image.open(photo) as opened:
            width, height = opened.size
            if opened.getexif().get(0x0112, 1) in (5, 6, 7, 8):  # EXIF: the camera was turned.
                width, height = height, width
        images.append({"id": number, "file_name": photo.name, "width": width, "height": height})
        sure = scores >= SURE  # (M,)
        size = torch.tensor([width, height])
        start, stop = corners[sure, :2] * size, corners[sure, 2:] * size  # (M, 2)
        placed = torch.cat([start, stop - start], dim=1)  # (M, 4)
        for label, box in zip(labels[sure].tolist(), placed.tolist(), strict=True):
            record = {"image_id": number, "category_id": label + 1, "bbox": box, "iscrowd": 0}
            annotations.append({"id": len(annotations) + 1, **record})
    categories = [{"id": n, "name": name} for n, name in enumerate(classes, start=1)]
    write_json(file, {"images": images, "annotations": annotations, "categories": categories})


def pseudo_rows(
    folders: worlds.Folders, teachers: Path, out: Path, precision: str
) -> Iterator[Row]:
    """Pseudo-captions of the photos without captions.

    Writes how well such captions fit the photos of `everyday`, the detector's boxes and the scales.
    """
    paths = folders.training_photos()
    everyday = folders.everyday_captions("val")

    found: dict[Path, Boxes] = {}

    def seen(photos: Sequence[Path], name: str) -> Tensor:
        """What the teachers say of photos, (N, 2361), the best scores of things last."""
        loaded = worlds.load_photos(photos)
        things = detect(loaded, teachers, out / f"boxes{name}.safetensors", precision)
        found.update(zip(photos, things, strict=True))
        if not name:
            maps = TeacherMaps(teachers, precision)
            maps.fit(*sample(loaded, things))
            maps.write_scales(out / SCALES)
        file = out / f"features{name}.safetensors"
        return global_features(loaded, things, teachers, file, precision)

    features, of_everyday = seen(paths, ""), seen(list(everyday), "_everyday")
    few = folders.flickr_photos("val")[:VALIDATION_PHOTOS]
    stored = out / "boxes_Flickr8k.safetensors"
    found.update(
        zip(few, detect(worlds.load_photos(few), teachers, stored, precision), strict=True)
    )
    classes = Detector(teachers).classes
    write_instances(out / "instances.json", found, classes)
    people = {**folders.everyday_captions("train"), **folders.flickr_captions("train")}
    captions = {photo: [tokenize(text) for text in texts] for photo, texts in people.items()}
    finder = pseudo_captions.Finder(
        features[[row for row, path in enumerate(paths) if path in captions]],
        [captions[path] for path in paths if path in captions],
        pseudo_captions.read_captions(folders.everyday / "text" / "coco_captions.txt.gz"),
        classes,
    )
    retrieved = [" ".join(best[0]) for best in finder(of_everyday, 1)]
    scores = evaluate_captions(retrieved, list(everyday.values()))
    write_json(out / "evaluation.json", scores.as_dict())
    wanted = [row for row, path in enumerate(paths) if path not in captions]
    for row, best in zip(wanted, finder(features[wanted], CAPTIONS_EACH), strict=True):
        for words in best:
            yield Row(paths[row], " ".join(words), "train")


def main() -> None:
    """Write the tables."""
    parser = worlds.folder_parser(
        __doc__,
        teachers="folder of the teachers",
        out="the folder to write",
    )
    add_precision(parser)
    arguments = parser.parse_args()
    folders = worlds.Folders(arguments.flickr, arguments.everyday)
    rows = list(true_rows(folders))
    write_table(arguments.out / "people.jsonl", rows)
    write_table(arguments.out / "validation.jsonl", validation_rows(folders, rows))
    found = pseudo_rows(folders, arguments.teachers, arguments.out, arguments.precision)
    write_table(arguments.out / "all.jsonl", [*rows, *found])


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
