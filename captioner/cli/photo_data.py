"""Options of data sets and scores, and the photos of `captioner evaluate` and `captioner maps`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from captioner.cli.report import report
from captioner.cli.shared_options import Group, add_overwrite, refuse
from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, DEFAULT_METRICS, METRICS

if TYPE_CHECKING:
    from captioner.caption import Captioner
    from captioner.data.example import Example
    from captioner.data.shapes import ShapesExample

FILES = ("coco", "karpathy", "flickr8k", "table")
FORMATS = (*FILES, "shapes")
"""Formats of data sets: in files, and all."""


def add_format(
    group: Group, formats: Sequence[str] = FILES, default: str | None = None, required: bool = False
) -> None:
    """Add --format."""
    group.add_argument(
        "--format",
        choices=formats,
        metavar="FORMAT",
        default=default,
        required=required,
        help=", ".join(formats) + (f" (default: {default})" if default else ""),
    )


def add_photos(parser: argparse.ArgumentParser) -> Group:
    """Add the group of MODEL and a data set."""
    data = parser.add_argument_group("input")
    data.add_argument("model", metavar="MODEL", help="a model folder, or a packaged model")
    add_format(data, FORMATS)
    data.add_argument("--annotations", metavar="FILE", help="the captions, in that format")
    data.add_argument("--images", metavar="FOLDER", help="the photos; optional for a table")
    data.add_argument("--split", help="as the format names it")
    data.add_argument(
        "--count", type=int, metavar="N", help="the first N photos (shapes: 500 by default)"
    )
    add_on_problem(data, "what cannot be read")
    return data


def add_on_problem(group: Group, what: str) -> None:
    """Add --on-problem."""
    group.add_argument(
        "--on-problem",
        choices=("refuse", "skip"),
        metavar="ACTION",
        help=f"refuse (default) or skip {what}",
    )


def add_scores(parser: argparse.ArgumentParser) -> Group:
    """Add the choice of scores and the files they are written to."""
    group = parser.add_argument_group("scores")
    group.add_argument(
        "--metrics",
        nargs="+",
        choices=METRICS,
        default=DEFAULT_METRICS,
        metavar="METRIC",
        help=f"{', '.join(DEFAULT_METRICS)} (default: these), METEOR, SPICE (need captioner[java])",
    )
    group.add_argument(
        "--confidence",
        nargs="?",
        type=float,
        const=CONFIDENCE,
        metavar="SHARE",
        help=f"bootstrap confidence intervals (default: {CONFIDENCE})",
    )
    group.add_argument(
        "--fluency",
        metavar="FILE",
        help="people's captions, one a line: count the captions that are worded as they are",
    )
    group.add_argument("--json", metavar="FILE", help="write the scores")
    group.add_argument("--csv", metavar="FILE", help="write the scores of every image")
    add_overwrite(group)
    return group


def check_photos(arguments: argparse.Namespace) -> None:
    """Raise `UserError` for options of `add_photos` out of range or without meaning."""
    if arguments.count is not None and arguments.count < 1:
        raise UserError(f"--count {arguments.count} is not at least 1")
    if arguments.format == "shapes":
        of_files = ("annotations", "images", "split", "on_problem")
        refuse(arguments, of_files, "with --format shapes, which are generated")
    elif arguments.format and not arguments.annotations:
        raise UserError(f"--format {arguments.format} needs --annotations")


def load_with_photos(
    arguments: argparse.Namespace,
) -> tuple[Captioner, list[Example], list[ShapesExample], bool]:
    """The model, the photos, the pictures if they are generated, and whether records were skipped.

    Raises `UserError` where the paths name no photo.
    """
    from captioner import load
    from captioner.data.example import Example, Problems
    from captioner.data.readers import read_examples
    from captioner.data.shapes import shapes_examples, unseen_shapes
    from captioner.vision.find_images import find_images

    if arguments.format == "shapes":
        model = load(arguments.model, arguments.device, arguments.precision)
        pictures = unseen_shapes(model.preprocessing.size, arguments.count or 500)
        return model, shapes_examples(pictures), pictures, False
    problems = Problems(arguments.on_problem or "refuse")
    if arguments.format is None:
        examples = [Example(str(file), file) for file in find_images([arguments.images])]
        if not examples:
            raise UserError(f"there are no photos in {arguments.images}")
    else:
        examples = read_examples(
            arguments.format, arguments.annotations, arguments.images, arguments.split, problems
        )
    for sentence in problems.sentences:
        report(sentence)
    model = load(arguments.model, arguments.device, arguments.precision)
    return model, examples[: arguments.count], [], len(problems) > 0
