"""Write the captions and the detector's boxes of both data sets, as `captioner train` reads them.

- `people.jsonl`: `train` of both, `flickr` and `everyday` for validation.
- `validation.jsonl`: as `val`, the photos by which the best epoch is chosen.
- `rewarded.jsonl`: `train` with each caption once, those of everyday photos also for their mirror
  images, in `mirrored/`: Flickr8k has more photos.
- `texts.txt`: captions without photos, without those that say there is no photo and those held out.
- `instances.json`: boxes of all photos of these tables, in COCO's format.

  python scripts/default_model/tables.py --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --out runs/tables
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, filterfalse
from pathlib import Path
from typing import NamedTuple

import torch
from photos import Folders, folder_parser, squashed
from PIL import ImageOps
from teachers import Detector

from captioner.cli.program import run_program
from captioner.data.parallel import read_lines
from captioner.data.readers import read_splits
from captioner.files import atomic_path, write_json, write_text
from captioner.progress import progress_bar
from captioner.text.tokenizer import tokenize
from captioner.vision.images import load_image

CAPTION_COPIES = 3
"""How often each caption of an everyday photo is listed: Flickr8k has six times as many."""

NO_PHOTO = re.compile(
    r"\b(no|not|unable|cannot|can't|isn't)\b.*\b(image|picture|photo|page)s?\b"
    r"|\b(image|picture)s?\b.*\b(not|unable|unavailable)\b|\bhit\b.*\b(image|describe)",
    re.IGNORECASE,
)
"""Captions that say that there is no photo, as writers did where it failed to load."""

SURE = 0.4
"""Detections below it are not in `instances.json`."""


class Row(NamedTuple):
    """A photo, one of its captions, and the split."""

    image: Path
    caption: str
    split: str


def people_rows(folders: Folders) -> Iterator[Row]:
    """People's captions, as rows of the table."""
    for photo, captions in folders.flickr_captions("train").items():
        yield from (Row(photo, one_spelling(caption), "train") for caption in captions)
    for photo, captions in folders.flickr_captions("val").items():
        yield from (Row(photo, caption, "flickr") for caption in captions)
    for photo, captions in folders.everyday_captions("train").items():
        for caption in captions * CAPTION_COPIES:
            yield Row(photo, one_spelling(caption), "train")
    for photo, captions in folders.everyday_captions("val").items():
        yield from (Row(photo, caption, "everyday") for caption in captions)


def one_spelling(caption: str) -> str:
    """Spell "close-up" as "close up", and end no caption at a comma.

    A model that knows both spellings says "a close up of a close-up".
    """
    return re.sub(r"\bclose-?up\b", "close up", caption, flags=re.IGNORECASE).rstrip(" ,")


def mirror_image(photo: Path, folder: Path) -> Path:
    """Write the mirror image of a photo, unless it is there; returns its path."""
    mirrored = folder / f"mirrored_{photo.parent.name}_{photo.stem}.jpg"
    if not mirrored.exists():
        with atomic_path(mirrored) as temporary:
            ImageOps.mirror(load_image(photo)).save(temporary, "JPEG", quality=95, subsampling=0)
    return mirrored


def write_table(file: Path, rows: Iterable[Row]) -> None:
    """Write a table in JSONL."""
    lines = (
        json.dumps({"image": str(row.image.resolve()), "caption": row.caption, "split": row.split})
        for row in rows
    )
    write_text(file, "\n".join(lines) + "\n")


def write_instances(file: Path, photos: Sequence[Path], detector: Detector) -> None:
    """Write what a detector is sure of in photos, in COCO's format."""
    images, annotations = [], []
    with progress_bar("detecting", len(photos), "photos") as progress:
        for number, photo in enumerate(photos, start=1):
            image = load_image(photo)
            width, height = image.size
            images.append({"id": number, "file_name": photo.name, "width": width, "height": height})
            ((labels, scores, corners),) = detector(squashed(image)[None].float() / 255)
            sure = scores >= SURE  # (M,)
            start, stop = (corners[sure] * torch.tensor([width, height] * 2)).split(2, dim=1)
            boxes = torch.cat([start, stop - start], dim=1)  # (M, 4): x, y, width, height
            for label, box in zip(labels[sure].tolist(), boxes.tolist(), strict=True):
                record = {"image_id": number, "category_id": label + 1, "bbox": box, "iscrowd": 0}
                annotations.append({"id": len(annotations) + 1, **record})
            progress.update()
    categories = [{"id": n, "name": name} for n, name in enumerate(detector.classes, start=1)]
    write_json(file, {"images": images, "annotations": annotations, "categories": categories})


def write_texts(
    file: Path, captions: Path, held_out: Path | None, chosen: Iterable[str] = ()
) -> None:
    """Write people's captions without photos, one a line.

    held_out: COCO captions that are left out, to measure on. chosen: others, of photos that
        settings are chosen by.
    """
    kept_back = {tuple(tokenize(one_spelling(text))) for text in chosen}
    if held_out is not None:
        examples = read_splits("coco", held_out, check_files=False)[0]
        kept_back |= {tuple(tokenize(text)) for each in examples for text in each.captions}
    texts = filterfalse(NO_PHOTO.search, map(one_spelling, read_lines(captions)))
    kept = [text for text in texts if tuple(tokenize(text)) not in kept_back]
    write_text(file, "\n".join(kept) + "\n")


def main() -> None:
    """Write the tables."""
    parser = folder_parser(__doc__, out="the folder to write")
    parser.add_argument("--held-out", type=Path, help="COCO captions that nothing is learned from")
    arguments = parser.parse_args()
    folders = Folders(arguments.flickr, arguments.everyday)
    out = arguments.out
    rows = list(people_rows(folders))
    write_table(out / "people.jsonl", rows)
    chosen = set(chain.from_iterable(folders.validation_photos().values()))
    validation = [row._replace(split="val") for row in rows if row.image in chosen]
    write_table(out / "validation.jsonl", validation)
    everyday = folders.everyday_captions("train")
    mirrored = {photo: mirror_image(photo, out / "mirrored") for photo in everyday}
    once = dict.fromkeys(rows)
    copies = [row._replace(image=mirrored[row.image]) for row in once if row.image in everyday]
    write_table(out / "rewarded.jsonl", [*once, *copies])
    texts = folders.everyday / "text" / "coco_captions.txt.gz"
    write_texts(out / "texts.txt", texts, arguments.held_out)
    learned_from = (row.image for row in rows if row.split == "train")
    photos = list(dict.fromkeys([*learned_from, *chosen, *mirrored.values()]))
    detector = Detector(arguments.teachers, arguments.precision)
    write_instances(out / "instances.json", photos, detector)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
