"""Photos to score a model on: of a data set, of a folder, or generated shapes."""

from __future__ import annotations

from pathlib import Path

from captioner.data import shapes
from captioner.data.example import Example, Problems
from captioner.data.instances import Grounding
from captioner.data.readers import read_splits
from captioner.errors import UserError
from captioner.vision.images import photo_files


def read_photos(
    format: str | None,
    annotations: str | Path | None,
    images: str | Path | None,
    split: str | None,
    count: int | None,
    size: int,
    problems: Problems,
) -> tuple[list[Example], Grounding | None]:
    """The first `count` photos, and where the things are that words name, if they were generated.

    format: of `read_splits`, or `shapes`: 500 pictures by default, which no model was trained on.
    annotations: None for all photos in the folder `images`, without captions.
    size: of generated pictures, in pixels.
    """
    if count is not None and count < 1:
        raise UserError(f"--count {count} is not at least 1")
    if format == "shapes":
        config = shapes.ShapesConfig(image_size=size)
        pictures = shapes.generate(count or 500, shapes.UNSEEN_SEED, config)
        examples = shapes.shapes_examples(pictures)
        by_name = {one.image_id: picture for one, picture in zip(examples, pictures, strict=True)}
        return examples, shapes.shapes_grounding(by_name)
    if annotations is not None:
        (examples,) = read_splits(format, annotations, images, [split], problems)
        return examples[:count], None
    files = photo_files([images or "."], note=problems.notes.append)[:count]
    return [Example(str(file), file) for file in files], None
