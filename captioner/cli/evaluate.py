"""`captioner evaluate`."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from captioner.cli import evaluate_captions, evaluate_maps, evaluate_translations
from captioner.cli.options import (
    TRANSLATION_SEARCH,
    Commands,
    add_device,
    add_parser,
    add_search,
    refuse,
)
from captioner.decoding.options import TranslationSearch
from captioner.errors import UserError
from captioner.files import check_output, file_keys, real_path

DESCRIPTION = """\
Scores captions: BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D, with the brevity penalty beside them; then
how varied their text is. METEOR and SPICE, which need Java, are computed on request (--metrics).

A file of captions in COCO's result format, against COCO's annotation format:

  captioner evaluate --results results.json --references captions_val2014.json
  captioner evaluate --results results.json --references captions_val2014.json --confidence \\
      --csv scores.csv --page best_and_worst.html --images val2014/
  captioner evaluate --results results.json --references captions_val2014.json --against other.json

A single photo: CIDEr-D then needs to know which words are rare, from a larger set of references:

  captioner evaluate --references captions_val2014.json --write-document-frequency frequency.json
  captioner evaluate --results one.json --references captions_val2014.json \\
      --document-frequency frequency.json

Things that captions name and that are not in the photo, by COCO's instances:

  captioner evaluate --results results.json --references captions_val2014.json \\
      --instances instances_val2014.json

A model, free-running, on a data set; its captions may be kept with --save-results:

  captioner evaluate --model runs/flickr8k/model --format flickr8k --split val \\
      --annotations Flickr8k.token.txt --images Flicker8k_Dataset

A model of the generated shapes, on pictures it has not seen: exact captions, and how much of each
map lies inside the box of the thing the word names:

  captioner evaluate --model runs/shapes/model --format shapes

"""
DESCRIPTION += f"{evaluate_maps.DESCRIPTION}\n{evaluate_translations.DESCRIPTION}"
DESCRIPTION += """
A photo or record left out (--on-problem skip), and a photo that the page lacks, is reported; the
rest is finished, and the exit code is then 2. What is read is never written over.
"""

FORMATS = ("coco", "karpathy", "flickr8k", "table", "shapes")

INPUTS = (
    *("results", "references", "annotations", "images", "document_frequency"),
    *("training_captions", "against", "instances", "synonyms", "entities"),
    *("source", "hypotheses"),
)
OUTPUTS = ("json", "csv", "page", "curves", "save_results", "write_document_frequency")

READ_IN_FOLDERS = {
    "annotations": ("captions_*.json", "annotations/captions_*.json"),
    "references": ("captions_*.json", "annotations/captions_*.json"),
    "training_captions": ("captions_*.json", "annotations/captions_*.json"),
    "entities": ("Annotations/*.xml", "Sentences/*.txt"),
    "model": (
        *("model.safetensors", "config.json", "README.md"),
        *("vocabulary.json", "source.json", "target.json"),
    ),
}
"""The files that are read, by pattern, where an option names a folder; photos are found apart."""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(
        commands, "evaluate", "score captions, a model or its maps, translations", DESCRIPTION
    )
    files = parser.add_argument_group("captions from a file")
    files.add_argument("--results", metavar="FILE", help="captions, in COCO's result format")
    files.add_argument(
        "--references",
        metavar="FILE",
        help="references, in COCO's format, or as --format says; of translations, a text file",
    )
    model = parser.add_argument_group("captions from a model")
    model.add_argument("--model", help="a model folder, or a packaged model")
    model.add_argument("--format", choices=FORMATS, help="of the data set, or of --references")
    model.add_argument("--annotations", metavar="FILE", help="the captions, in that format")
    model.add_argument(
        "--images", metavar="FOLDER", help="the photos; a table can do without, its paths are whole"
    )
    model.add_argument("--split", help="as the format names it")
    model.add_argument(
        "--on-problem",
        choices=("refuse", "skip"),
        help="at a photo or record that cannot be read: stop, or leave it out, finish the rest and "
        "exit with code 2 (default: refuse)",
    )
    model.add_argument("--batch-size", type=int, help="photos or sentences at a time (default: 50)")
    model.add_argument(
        "--save-results", metavar="FILE", help="keep the captions, in COCO's result format"
    )
    add_device(model)  # type: ignore[arg-type]
    add_search(parser, TranslationSearch)
    evaluate_captions.add_options(parser)
    evaluate_maps.add_options(parser)
    evaluate_translations.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Score the captions, or with --maps the maps; or translations."""
    check_files(arguments)
    if evaluate_translations.chosen(arguments):
        return evaluate_translations.run(arguments)
    only = (*evaluate_translations.OWN, *TRANSLATION_SEARCH)
    refuse(arguments, only, "without --source or --hypotheses")
    if arguments.maps:
        refuse(arguments, evaluate_captions.OWN, "with --maps")
        return evaluate_maps.run(arguments)
    refuse(arguments, evaluate_maps.OWN, "without --maps")
    return evaluate_captions.run(arguments)


def check_files(arguments: argparse.Namespace) -> None:
    """Raise `UserError` for an output that would replace what is read, or another output.

    Likewise for one that is a folder, or whose folder cannot be written to.
    """
    taken: dict[object, str] = {}
    for option, path in _given(arguments, INPUTS):
        taken.update(dict.fromkeys(file_keys(path), option))
    outputs = list(_given(arguments, OUTPUTS))
    places: dict[str, str] = {}
    for option, path in outputs:
        check_output(option, path)
        for key in file_keys(path):
            if taken.setdefault(key, option) != option:
                raise UserError(f"{taken[key]} and {option} are the same file, {path}")
        if os.path.lexists(path):
            _refuse_to_replace_what_is_read(arguments, option, path)
        places[real_path(path)] = option
    for option, path in outputs:
        for above in map(os.fspath, Path(real_path(path)).parents):
            if above in places:
                raise UserError(f"{places[above]} {above} is a file, but {option} needs a folder")


def _given(arguments: argparse.Namespace, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The options among these that were given, each with every path it has."""
    for name in names:
        option = f"--{name.replace('_', '-')}"
        given = getattr(arguments, name)
        for path in given if isinstance(given, list) else [given]:
            if path == "":
                raise UserError(f"{option} is empty; it should name a file or folder")
            if path is not None:
                yield option, path


def _refuse_to_replace_what_is_read(arguments: argparse.Namespace, option: str, path: str) -> None:
    """Raise `UserError` when a file that is there is a photo, or lies in a folder that is read."""
    for name, patterns in READ_IN_FOLDERS.items():
        for source, folder in _given(arguments, (name,)):
            inside = _place_in(folder, path)
            if any(inside and fnmatch(inside, pattern) for pattern in patterns):
                raise UserError(f"{option} would replace {path}, which {source} reads")
    if _is_photo_of(arguments, path):
        raise UserError(
            f"{option} would replace {path}, which is one of the photos; give another place"
        )


def _place_in(folder: str, path: str) -> str:
    """The path as seen from a folder; empty where it lies elsewhere."""
    real, base = Path(real_path(path)), Path(real_path(folder))
    return real.relative_to(base).as_posix() if real.is_relative_to(base) else ""


def _is_photo_of(arguments: argparse.Namespace, path: str) -> bool:
    """Whether a file that is there is one of the photos that the arguments name.

    Any photo below --images counts; so do the photos of a table, which may lie anywhere.
    """
    # Imported here: Pillow is needed only where an output is there already.
    from captioner.data.table import read_table
    from captioner.vision.find_images import find_images
    from captioner.vision.images import load_image

    photos: list[Path] = []
    with contextlib.suppress(UserError):  # Whoever reads them says it better.
        photos += find_images([arguments.images] if arguments.images else [])
    if arguments.format == "table" and arguments.annotations:
        with contextlib.suppress(UserError):
            table = read_table(
                arguments.annotations, arguments.images, None, "skip", check_files=False
            )
            photos += [image.path for image in table.images]
    keys = file_keys(path)
    if any(keys & file_keys(photo) for photo in photos):
        return True
    if not arguments.images or not _place_in(arguments.images, path):
        return False
    try:  # A photo whose name has another end, which a data set may have all the same.
        load_image(path)
    except UserError:
        return False
    return True
