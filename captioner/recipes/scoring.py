"""Scores of a result file, and of a model on a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from captioner.caption import Captioner, SearchOptions
from captioner.data.coco import read_coco
from captioner.errors import UserError
from captioner.evaluation.captions import CaptionScores, evaluate_captions
from captioner.evaluation.results import read_results
from captioner.progress import Progress
from captioner.recipes.captioning import write_captions
from captioner.recipes.sources import Source


def score_results(results: str | Path, references: str | Path) -> CaptionScores:
    """Score captions in COCO's result format against references in COCO's annotation format.

    Only the images of the results are scored. Raises `UserError` for ill-formed files, and naming
    an image of the results that has no references.
    """
    captions = {str(image_id): caption for image_id, caption in read_results(results).items()}
    known = read_coco(references, "", check_files=False)
    captions_of = {str(image.image_id): list(image.captions) for image in known.images}
    for image_id in captions:
        if image_id not in captions_of:
            raise UserError(f"{results}: image {image_id} has no references in {references}")
    return evaluate_captions(captions, {name: captions_of[name] for name in captions})


def score_model(
    captioner: Captioner,
    source: Source,
    search: SearchOptions | None = None,
    batch_size: int = 50,
    results: str | Path | None = None,
    left_out: dict[str, str] | None = None,
) -> CaptionScores:
    """Caption the photos of a source, each once, free-running, and score the captions.

    results: a file to keep the captions in, in COCO's result format; written before they are
        scored, and with what is done so far when this ends early.
    left_out: gets the photos that cannot be read, by name, each with a sentence that says why;
        the others are scored. Without it such a photo is refused.
    Raises `UserError` naming a photo that cannot be read, or when none can be.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    options = captioner.search if search is None else search
    generator = options.generator()  # One for all batches.
    rows: list[int] = []
    captions: list[str] = []
    progress = Progress("captioning", len(source), "images")
    try:
        for first in range(0, len(source), batch_size):
            batch = range(first, min(first + batch_size, len(source)))
            photos = _opened(source, batch, left_out)
            found = captioner.caption_loaded(list(photos.values()), options, generator)
            rows += photos
            captions += [caption.text for caption in found]
            progress.advance(len(batch))
        progress.close()
    finally:  # A photo that is refused, or an interruption, loses no caption.
        if results is not None and captions:
            write_captions(Path(results), captions, source.take(rows))
    if not captions:
        raise UserError(f"not one of {len(source):,} photos could be read")
    return evaluate_captions(captions, source.take(rows).captions)


def _opened(
    source: Source, rows: Sequence[int], left_out: dict[str, str] | None
) -> dict[int, Image.Image]:
    """The photos of the given rows that can be read, by row."""
    photos = {}
    for row in rows:
        try:
            photos[row] = source.open_photo(row)
        except UserError as error:
            if left_out is None:
                raise
            left_out[str(source.image_ids[row])] = str(error)
    return photos
