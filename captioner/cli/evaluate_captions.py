"""`captioner evaluate` without --maps: captions, of a file or of a model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from captioner.cli.options import SEARCH, refuse, search_options
from captioner.cli.report import report, report_left_out
from captioner.errors import UserError

if TYPE_CHECKING:
    from captioner.evaluation.caption_report import ScoreReport
    from captioner.evaluation.caption_scorer import ScoringOptions

METRICS = ("BLEU", "ROUGE-L", "CIDEr-D", "word-precision", "METEOR", "SPICE")
DEFAULT_METRICS = METRICS[:4]

OF_RESAMPLES = ("resamples", "resampling_seed")
OF_PAGE = ("page_by", "page_count")
OWN = (
    *("metrics", "document_frequency", "write_document_frequency", "training_captions"),
    *("confidence", "against", *OF_RESAMPLES, *OF_PAGE),
)
"""The options that have a meaning without --maps only; None where not given."""

OF_CAPTIONS = (*OWN, "instances", "synonyms", "csv", "page")
OF_DATA = ("annotations", "images", "split", "on_problem", "save_results")
OF_MODEL = ("model", "annotations", "on_problem", "save_results", "batch_size", *SEARCH)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what may be found out about captions, and where it goes."""
    scores = parser.add_argument_group("scores")
    scores.add_argument(
        "--metrics",
        nargs="+",
        choices=METRICS,
        metavar="METRIC",
        help=f"some of {', '.join(METRICS)} (default: the first four; the last two need Java and "
        'pip install "captioner[java]")',
    )
    scores.add_argument(
        "--document-frequency",
        metavar="FILE",
        help="take from here, not from the references, how rare words are; for CIDEr-D",
    )
    scores.add_argument(
        "--write-document-frequency", metavar="FILE", help="count it over all --references"
    )
    scores.add_argument(
        "--confidence",
        nargs="?",
        type=float,
        const=0.95,
        metavar="SHARE",
        help="confidence intervals of the scores, by bootstrap over the images (default: 0.95)",
    )
    scores.add_argument(
        "--against",
        metavar="FILE",
        help="other captions of the same images, in COCO's result format: is the difference real?",
    )
    scores.add_argument(
        "--resamples", type=int, metavar="N", help="of --confidence and --against (default: 1000)"
    )
    scores.add_argument("--resampling-seed", type=int, metavar="SEED", help="of these (default: 0)")
    scores.add_argument(
        "--training-captions",
        metavar="FILE",
        help="which captions were seen in training? in --format (of its split train), or COCO's",
    )
    scores.add_argument(
        "--instances",
        nargs="+",
        metavar="FILE",
        help="COCO's instances: which things are in the photos, and where",
    )
    scores.add_argument(
        "--synonyms", metavar="FILE", help="words for these things (default: those of the package)"
    )
    out = parser.add_argument_group("output")
    out.add_argument("--json", metavar="FILE", help="write the scores")
    out.add_argument("--csv", metavar="FILE", help="write the scores of every image, or word")
    out.add_argument("--page", metavar="FILE", help="write a web page of the best and the worst")
    out.add_argument(
        "--page-by", metavar="SCORE", help="what ranks them, as BLEU-4 (default: CIDEr-D)"
    )
    out.add_argument(
        "--page-count",
        type=int,
        metavar="N",
        help="N best and N worst, of few images half of them each (default: 20)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Score, print the tables, write the files asked for; 2 when an image was left out of them."""
    if arguments.results or arguments.references:
        well = _score_files(arguments)
    elif arguments.model and arguments.format == "shapes":
        well = _score_shapes(arguments)
    elif arguments.model and arguments.format and arguments.annotations:
        well = _score_model(arguments)
    else:
        raise UserError(
            "give --results and --references, or --model, --format and --annotations; "
            "translations are scored with --hypotheses or --source"
        )
    return 0 if well else 2


def _tell(found: ScoreReport, arguments: argparse.Namespace) -> bool:
    """Print and write what was found; whether all photos of the page could be read."""
    from captioner.files import try_all, write_json

    print(found.table(), flush=True)
    unread: list[str] = []

    def write_page() -> None:
        count = 20 if arguments.page_count is None else arguments.page_count
        unread.extend(found.write_page(arguments.page, arguments.page_by, count))

    writers: list[Callable[[], None]] = []
    if arguments.json:
        writers.append(partial(write_json, arguments.json, found.as_dict()))
    if arguments.csv:
        writers.append(partial(found.write_csv, arguments.csv))
    if arguments.page:
        writers.append(write_page)
    try:
        try_all(writers)
    finally:
        for sentence in unread:
            report(sentence)
    return not unread


def _score_files(arguments: argparse.Namespace) -> bool:
    from captioner.evaluation.score_captions import score_results, store_document_frequency
    from captioner.files import try_all

    if arguments.model and not (arguments.results or arguments.write_document_frequency):
        raise UserError("--references of a model are those of a translator: give --source as well")
    refuse(arguments, OF_MODEL, "where --results and --references are scored")
    if not arguments.page:
        refuse(arguments, ("images",), "where --results are scored without --page")
    if not arguments.references:
        raise UserError("give --results and --references together")
    if not (arguments.results or arguments.write_document_frequency):
        raise UserError("give --results and --references together")
    format = arguments.format or "coco"
    if format == "shapes":
        raise UserError("--format shapes has no meaning with --references: shapes are generated")
    options = None
    if arguments.results:
        options = _scoring_options(arguments)
    else:
        others = [name for name in OF_CAPTIONS if name != "write_document_frequency"]
        refuse(arguments, (*others, "json"), "without --results")
    references, split = arguments.references, arguments.split
    well = True

    def count() -> None:
        path = arguments.write_document_frequency
        frequency = store_document_frequency(references, path, format, split)
        print(f"{path}: document frequency of {frequency.images:,} images", flush=True)

    def score() -> None:
        nonlocal well
        found = score_results(
            arguments.results, references, options, format, split, arguments.images
        )
        well = _tell(found, arguments)

    parts = ((count, arguments.write_document_frequency), (score, arguments.results))
    try_all([part for part, wanted in parts if wanted])
    return well


def _score_model(arguments: argparse.Namespace) -> bool:
    from captioner import load
    from captioner.evaluation.caption_scorer import Scorer
    from captioner.evaluation.score_captions import score_model
    from captioner.recipes.sources import read_split

    refuse(arguments, ("write_document_frequency",), "without --references")
    batch_size = _batch_size(arguments)
    on_problem = arguments.on_problem or "refuse"
    scorer = Scorer(_scoring_options(arguments))
    source = read_split(
        arguments.format, arguments.annotations, arguments.images, arguments.split, on_problem
    )
    if source.report:
        report(source.report)
    model = load(arguments.model, arguments.device)
    search = search_options(arguments, model.search)
    left_out: dict[str, str] | None = {} if on_problem == "skip" else None
    not_kept: list[str] = []
    try:
        found = score_model(
            model,
            source,
            search,
            batch_size,
            arguments.save_results,
            left_out,
            scorer,
            arguments.model,
            not_kept,
        )
    finally:
        report_left_out(left_out, len(source))
        for sentence in not_kept:
            report(sentence)
    well = _tell(found, arguments)
    return well and not (left_out or not_kept or source.report)


def _score_shapes(arguments: argparse.Namespace) -> bool:
    from captioner import load
    from captioner.files import write_json
    from captioner.recipes.shapes import score_shapes

    refuse(arguments, OF_DATA, "with --format shapes, which are generated")
    refuse(arguments, OF_CAPTIONS, "with --format shapes, whose captions are right or wrong")
    batch_size = _batch_size(arguments)
    model = load(arguments.model, arguments.device)
    search = search_options(arguments, model.search)
    scores = score_shapes(model, search=search, batch_size=batch_size)
    print(scores.table())
    if arguments.json:
        write_json(arguments.json, scores.as_dict())
    return True


def _scoring_options(arguments: argparse.Namespace) -> ScoringOptions:
    """What is to be found out. Raises `UserError` for options that do not go together."""
    from captioner.evaluation.caption_report import check_page
    from captioner.evaluation.caption_scorer import ScoringOptions
    from captioner.evaluation.captions import score_names
    from captioner.evaluation.significance import Resampling

    metrics = tuple(arguments.metrics or DEFAULT_METRICS)
    if "CIDEr-D" not in metrics:
        refuse(arguments, ("document_frequency",), "where CIDEr-D is not among the metrics")
    if not arguments.instances:
        refuse(arguments, ("synonyms",), "without --instances")
    if arguments.confidence is None and not arguments.against:
        refuse(arguments, OF_RESAMPLES, "without --confidence or --against")
    if arguments.page:
        check_page(score_names(metrics), arguments.page_by, arguments.page_count)
    else:
        refuse(arguments, OF_PAGE, "without --page")
    given = {
        "resamples": arguments.resamples,
        "confidence": arguments.confidence,
        "seed": arguments.resampling_seed,
    }
    return ScoringOptions(
        metrics=metrics,
        document_frequency=arguments.document_frequency,
        intervals=arguments.confidence is not None,
        resampling=Resampling(**{name: each for name, each in given.items() if each is not None}),
        against=arguments.against,
        training=arguments.training_captions,
        training_format=arguments.format or "coco",
        instances=arguments.instances or (),
        synonyms=arguments.synonyms,
    )


def _batch_size(arguments: argparse.Namespace) -> int:
    size: int = 50 if arguments.batch_size is None else arguments.batch_size
    if size < 1:
        raise UserError(f"--batch-size {size} is not at least 1")
    return size
