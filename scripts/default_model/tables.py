"""Write the captions of both worlds, and what the detector sees, as `captioner train` reads them.

`people.jsonl` has people's captions: `train` of both worlds, `flickr` and `everyday` for
validation. `all.jsonl` has in `train` also those that `pseudo_captions.py` finds for photos that
nobody captioned. How well it finds them is measured on the photos of `everyday`, whose own captions
it does not see, and kept in `evaluation.json`. `rewarded.jsonl` has in `train` each of people's
captions once, and those of everyday photos also for their mirror images, which are written to
`mirrored/`: Flickr8k has more photos. `texts.txt` has the captions without photos, without those
that say there is no photo and those held out.
`validation.jsonl` has, as `val`, the photos of both worlds by which the best epoch is chosen
(Flickr8k's first 300). `instances.json` has the boxes of all photos of these tables in COCO's
format. What the detector sees is kept, and the scales of `teachers.TeacherMaps`.

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

import pseudo_captions
import torch
from photos import Folders, folder_parser, load_photos
from PIL import Image, ImageOps
from teachers import SCALES, Boxes, Detector, TeacherMaps, detect, global_features, mirror, sample

from captioner.cli.program import run_program
from captioner.data.parallel import read_lines
from captioner.data.readers import read_examples
from captioner.evaluation.score import evaluate_captions
from captioner.files import atomic_path, write_json, write_text
from captioner.text.tokenizer import tokenize
from captioner.vision.images import load_image

CAPTION_COPIES = 3
"""How often each caption of an everyday photo is listed: Flickr8k has six times as many."""

CAPTIONS_EACH = 3
"""Pseudo-captions of a photo."""

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


def true_rows(folders: Folders) -> Iterator[Row]:
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
    folders: Folders, teachers: Path, mirrored: dict[Path, Path], out: Path, precision: str
) -> Iterator[Row]:
    """Pseudo-captions of the photos without captions.

    mirrored: the mirror images of photos.
    Writes how well such captions fit the photos of `everyday`, the detector's boxes and the scales.
    """
    photos = {"training": folders.training_photos(), **folders.validation_photos()}
    boxes: dict[Path, Boxes] = {}
    features = {}
    for name, paths in photos.items():
        loaded = load_photos(paths)
        things = detect(loaded, teachers, out / f"boxes_{name}.safetensors", precision)
        boxes.update(zip(paths, things, strict=True))
        if name == "training":
            TeacherMaps(teachers, precision).fit(*sample(loaded, things), out / SCALES)
        if name != "Flickr8k":
            file = out / f"features_{name}.safetensors"
            features[name] = global_features(loaded, things, teachers, file, precision)
    classes = Detector(teachers, precision).classes
    boxes.update({copy: mirror(boxes[photo]) for photo, copy in mirrored.items()})
    write_instances(out / "instances.json", boxes, classes)

    people = {**folders.everyday_captions("train"), **folders.flickr_captions("train")}
    captions = {photo: [tokenize(text) for text in texts] for photo, texts in people.items()}
    captioned = [row for row, path in enumerate(photos["training"]) if path in captions]
    finder = pseudo_captions.Finder(
        features["training"][captioned],
        [captions[photos["training"][row]] for row in captioned],
        pseudo_captions.read_captions(folders.everyday / "text" / "coco_captions.txt.gz"),
        classes,
    )
    retrieved = [" ".join(best[0]) for best in finder(features["everyday"], 1)]
    scores = evaluate_captions(retrieved, list(folders.everyday_captions("val").values()))
    write_json(out / "evaluation.json", scores.as_dict())
    wanted = [row for row, path in enumerate(photos["training"]) if path not in captions]
    found = finder(features["training"][wanted], CAPTIONS_EACH)
    for row, best in zip(wanted, found, strict=True):
        for words in best:
            yield Row(photos["training"][row], " ".join(words), "train")


def write_texts(file: Path, captions: Path, held_out: Path | None) -> None:
    """Write people's captions without photos, one a line.

    held_out: COCO captions that are left out, to measure on.
    """
    kept_back = set()
    if held_out is not None:
        examples = read_examples("coco", held_out, check_files=False)
        kept_back = {tuple(tokenize(text)) for each in examples for text in each.captions}
    texts = map(one_spelling, read_lines(captions))
    written = [
        text
        for text in texts
        if not NO_PHOTO.search(text) and tuple(tokenize(text)) not in kept_back
    ]
    write_text(file, "\n".join(written) + "\n")


def main() -> None:
    """Write the tables."""
    parser = folder_parser(__doc__, teachers="folder of the teachers", out="the folder to write")
    parser.add_argument("--held-out", type=Path, help="COCO captions that nothing is learned from")
    arguments = parser.parse_args()
    folders = Folders(arguments.flickr, arguments.everyday)
    out = arguments.out
    rows = list(true_rows(folders))
    chosen = {photo for photos in folders.validation_photos().values() for photo in photos}
    write_table(out / "people.jsonl", rows)
    write_table(
        out / "validation.jsonl",
        (row._replace(split="val") for row in rows if row.image in chosen),
    )
    everyday = set(folders.everyday_captions("train"))
    mirrored = {photo: mirror_image(photo, out / "mirrored") for photo in everyday}
    once = dict.fromkeys(rows)
    copies = (row._replace(image=mirrored[row.image]) for row in once if row.image in everyday)
    write_table(out / "rewarded.jsonl", [*once, *copies])
    texts = folders.everyday / "text" / "coco_captions.txt.gz"
    write_texts(out / "texts.txt", texts, arguments.held_out)
    found = pseudo_rows(folders, arguments.teachers, mirrored, out, arguments.precision)
    write_table(out / "all.jsonl", [*rows, *found])


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
