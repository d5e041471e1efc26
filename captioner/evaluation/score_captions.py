"""Scores of a result file, and of a model on a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.data.records import CaptionedImage, ImageId
from captioner.errors import UserError
from captioner.evaluation.caption_report import ScoreReport
from captioner.evaluation.caption_scorer import (
    Scorer,
    ScoringOptions,
    captions_by_name,
    read_references,
)
from captioner.evaluation.cider import DocumentFrequency
from captioner.evaluation.results import write_results
from captioner.evaluation.texts import CaptionTexts
from captioner.progress import progress_bar
from captioner.text.tokenizer import tokenize
from captioner.vision.images import load_image

if TYPE_CHECKING:  # They bring torch, which scoring a file can do without.
    from captioner.caption import Captioner
    from captioner.data.source import Source
    from captioner.decoding import SearchOptions


def score_results(
    results: str | Path,
    references: str | Path,
    options: ScoringOptions | None = None,
    format: str = "coco",
    split: str | None = None,
    images: str | Path | None = None,
) -> ScoreReport:
    """Score captions in COCO's result format against references.

    references: as the reader of `format` takes its annotations, of the split `split`.
    images: the folder of the photos, for the page; no photo need be there.

    Only the images of the results are scored, as in the COCO evaluation. Raises `UserError` for
    ill-formed files, naming an image of the results that has no references, and as `Scorer` does.
    """
    scorer = Scorer(options)
    captions = captions_by_name(results)
    known = {image.image_id: image for image in read_references(references, format, split, images)}
    for name in captions:
        if name not in known:
            raise UserError(f"{results}: image {name} has no references in {references}")
    scored = [known[name] for name in captions]
    image_ids = [_own_id(image) for image in scored]
    scorer.check_images(image_ids, str(results))
    texts = CaptionTexts.of(
        dict(zip(image_ids, captions.values(), strict=True)),
        {_own_id(image): image.captions for image in known.values()},
    )
    return replace(
        scorer.report(texts, image_ids, str(results)),
        names=tuple(image.path.name for image in scored),
        open_photo=None if images is None else lambda row: load_image(scored[row].path),
    )


def score_model(
    captioner: Captioner,
    source: Source,
    search: SearchOptions | None = None,
    batch_size: int = 50,
    results: str | Path | None = None,
    left_out: dict[str, str] | None = None,
    scorer: Scorer | None = None,
    name: str = "the model",
    not_kept: list[str] | None = None,
) -> ScoreReport:
    """Caption the photos of a source, each once, free-running, and score the captions.

    results: a file to keep the captions in, in COCO's result format; written before they are
        scored, and with what is done so far when this ends early.
    left_out: gets the photos that cannot be read, by name, each with a sentence that says why;
        the others are scored. Without it such a photo is refused.
    scorer: what is found out about the captions; by default their scores and their diversity.
    name: what a comparison calls the model.
    not_kept: gets a sentence when `results` cannot be written; the captions are scored all the
        same. Without it that is refused.
    Raises `UserError` naming a photo that cannot be read, when none can be, and as `Scorer` does.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    scorer = scorer or Scorer()
    if left_out is None:
        scorer.check_images(source.image_ids, name)
    options = captioner.search if search is None else search
    generator = options.generator()  # One for all batches.
    rows: list[int] = []
    captions: list[str] = []
    progress = progress_bar("captioning", len(source), "images")
    try:
        for first in range(0, len(source), batch_size):
            batch = range(first, min(first + batch_size, len(source)))
            photos = source.open_photos(batch, left_out)
            found = captioner.caption_loaded(list(photos.values()), options, generator)
            rows += photos
            captions += [caption.text for caption in found]
            progress.update(len(batch))
        progress.close()
    finally:  # A photo that is refused, or an interruption, loses no caption.
        if results is not None and captions:
            try:
                write_results(
                    results, dict(zip(source.take(rows).image_ids, captions, strict=True))
                )
            except UserError as error:
                if not_kept is None:
                    raise
                not_kept.append(str(error))
    if not captions:
        raise UserError(f"not one of {len(source):,} photos could be read")
    judged = source.take(rows)
    texts = replace(CaptionTexts.of(captions, judged.captions), images=judged.image_ids)
    return replace(
        scorer.report(texts, judged.image_ids, name),
        names=tuple(judged.names),
        open_photo=judged.open_photo,
    )


def store_document_frequency(
    references: str | Path,
    path: str | Path,
    format: str = "coco",
    split: str | None = None,
) -> DocumentFrequency:
    """Count the document frequency of CIDEr-D over references, as `score_results` reads them.

    Writes it to `path`. Raises `UserError` for ill-formed references, a single image among them,
    and when the file cannot be written.
    """
    found = read_references(references, format, split, None)
    frequency = DocumentFrequency.from_references(
        [[tokenize(caption) for caption in image.captions] for image in found]
    )
    frequency.write(path)
    return frequency


def _own_id(image: CaptionedImage) -> ImageId:
    """What the source itself calls an image: COCO's number, else its name."""
    return image.image_id if image.number is None else image.number
