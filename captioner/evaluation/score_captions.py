"""Scores a result file, and a model on a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.data.readers import read_examples
from captioner.errors import UserError
from captioner.evaluation.caption_report import ScoreReport
from captioner.evaluation.caption_scorer import Scorer
from captioner.evaluation.caption_source import caption_examples
from captioner.evaluation.cider import DocumentFrequency
from captioner.evaluation.results import read_results, write_results
from captioner.evaluation.texts import CaptionTexts
from captioner.text.tokenizer import tokenize
from captioner.vision.images import load_image

if TYPE_CHECKING:  # They bring torch, which scoring a file can do without.
    from PIL import Image

    from captioner.caption import Captioner
    from captioner.data.example import Example
    from captioner.decoding import SearchOptions


def score_results(
    results: str | Path,
    references: str | Path,
    scorer: Scorer | None = None,
    format: str = "coco",
    split: str | None = None,
    images: str | Path | None = None,
) -> ScoreReport:
    """Score captions in COCO's result format against references.

    references: as the reader of `format` takes its annotations, of the split `split`.
    scorer: by default scores and diversity.
    images: the folder of the photos, for the page; no photo need be there. By default the page has
        photos of a table alone, from the table's folder.

    Scores the images of the results only, as the COCO evaluation does. Raises `UserError` for
    ill-formed files, for an image without references, by name, and as `Scorer` does.
    """
    scorer = scorer or Scorer()
    captions = read_results(results)
    found = read_examples(format, references, images, split, check_files=False)
    known = {example.name: example for example in found}
    for name in captions:
        if name not in known:
            place = f"{references}" if split is None else f"the split {split!r} of {references}"
            raise UserError(f"{results}: image {name} has no references in {place}")
    scored = [known[name] for name in captions]

    def open_photo(row: int) -> Image.Image:
        return load_image(scored[row].path)

    texts = CaptionTexts.of(
        list(captions.values()),
        [image.captions for image in scored],
        [image.image_id for image in scored],
        len(found) - len(scored),
    )
    return replace(
        scorer.report(texts, str(results)),
        names=tuple(Path(str(example.path)).name for example in scored),
        open_photo=open_photo if images is not None or format == "table" else None,
    )


def score_model(
    captioner: Captioner,
    examples: Sequence[Example],
    search: SearchOptions | None = None,
    batch_size: int = 50,
    results: str | Path | None = None,
    left_out: dict[str, str] | None = None,
    scorer: Scorer | None = None,
    name: str = "the model",
    exact: bool = False,
) -> ScoreReport:
    """Caption photos by free-running search and score the captions.

    search, batch_size, left_out: as for `caption_examples`.
    results: a file for the captions, in COCO's result format; written before they are scored, and
        with the captions so far if an error ends the work early.
    scorer: by default scores and diversity.
    name: of the model, in a comparison.
    exact: report the share of captions that equal one of the photo's.
    Raises `UserError` as `caption_examples` and `Scorer` do, and if `results` cannot be written.
    """
    scorer = scorer or Scorer()
    captions: dict[int, str] = {}
    right = 0
    try:
        for row, caption in caption_examples(captioner, examples, search, batch_size, left_out):
            captions[row] = caption.text
            right += list(caption.words) in examples[row].words
    finally:  # An unreadable photo or an interruption loses no caption.
        if results is not None and captions:
            write_results(results, {examples[row].image_id: captions[row] for row in captions})
    scored = [examples[row] for row in captions]
    texts = CaptionTexts.of(
        list(captions.values()),
        [example.captions for example in scored],
        [example.image_id for example in scored],
    )

    def open_photo(number: int) -> Image.Image:
        return load_image(scored[number].path)

    return replace(
        scorer.report(texts, name),
        names=tuple(example.name for example in scored),
        open_photo=open_photo,
        exact=right / len(captions) if exact else None,
    )


def store_document_frequency(
    references: str | Path,
    path: str | Path,
    format: str = "coco",
    split: str | None = None,
) -> DocumentFrequency:
    """Count the document frequency of CIDEr-D over references and write it to `path`.

    references, format, split: as for `score_results`.
    Raises `UserError` for ill-formed references, for a single image, and if the file cannot be
    written.
    """
    found = read_examples(format, references, None, split, check_files=False)
    frequency = DocumentFrequency.from_references(
        [[tokenize(caption) for caption in image.captions] for image in found]
    )
    frequency.write(path)
    return frequency
