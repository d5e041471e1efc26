"""Scores of a result file, and of a model on a data set."""

from __future__ import annotations

from pathlib import Path

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
    captions_of = {image.image_id: list(image.captions) for image in known.images}
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
) -> CaptionScores:
    """Caption every photo of a source, once, free-running, and score the captions.

    results: a file to keep the captions in, in COCO's result format.
    Raises `UserError` naming a photo that cannot be read.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    captions: list[str] = []
    progress = Progress("captioning", len(source), "images")
    for first in range(0, len(source), batch_size):
        rows = range(first, min(first + batch_size, len(source)))
        found = captioner.caption([source.open_photo(row) for row in rows], search, batch_size)
        captions += [caption.text for caption in found]
        progress.advance(len(found))
    progress.close()
    if results is not None:
        write_captions(Path(results), captions, source)
    return evaluate_captions(captions, source.captions)
