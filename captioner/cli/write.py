"""The commands `write` and `unwrite`: captions of tables into photos, and out again."""

import argparse
from collections import Counter

from captioner.cli import shared_options as shared
from captioner.cli.caption import add_outputs
from captioner.cli.program import report
from captioner.errors import UserError
from captioner.outputs.options import OutputOptions
from captioner.text.languages import ENGLISH

_SWITCHES = ("overwrite_descriptions", "edited", "dry_run")
_FIELDS = ("keywords", "text", "embed", "describe", "format", "min_confidence", *_SWITCHES)


def add_commands(commands: shared.Commands) -> None:
    """Add both commands to the command line."""
    usage, summary = "write TABLE [options]", "write the captions of a table into photos"
    parser, add = shared.add_parser(commands, run, usage, summary)
    add("table", "TABLE", "captions.jsonl, .csv or .parquet, edits.csv, or a file image,caption")
    add("--images", "FOLDER", "the photos (default: the working folder, or else the table's)")
    add("--language", "TAG", "of people's captions whose rows name none", default=ENGLISH)
    add_outputs(shared.add_group(parser, "output"), _FIELDS)
    usage, summary = "unwrite PATH ... [options]", "take out of photos what captioner wrote"
    parser, add = shared.add_parser(commands, run_unwrite, usage, summary)
    add("paths", "PATH", "photos, folders, patterns in quotes, tables of captions", nargs="+")
    add("--images", "FOLDER", "the photos of tables (default: as of write)")
    add("--dry-run", "", "say what would be taken out, and do not")


def run(arguments: argparse.Namespace) -> int:
    """Writes the captions of a table into sidecars, texts and photos, without a model.

      captioner write captions.jsonl --xmp
      captioner write edits.csv --embed --dry-run

    Captions that a person wrote or changed are marked so: no machine's replaces them.
    """
    from captioner.outputs.writing import write_captions

    options = OutputOptions(**{name: getattr(arguments, name) for name in ("xmp", *_FIELDS)})
    if not options.describes_photos:
        raise UserError("name what to write: --xmp, --text or --embed")
    table, images, language = arguments.table, arguments.images, arguments.language
    return _end(write_captions(table, options, images, report, language), options.dry_run)


def run_unwrite(arguments: argparse.Namespace) -> int:
    """Takes out of photos and sidecars what captioner wrote and nobody changed since.

      captioner unwrite photos/ --dry-run

    Words of people that --overwrite-descriptions replaced come back. A text goes if it is a
    model's caption in a table that is named, or in XMP.
    """
    from captioner.outputs.writing import unwrite_captions
    from captioner.vision.images import photo_files

    photos = [*map(str, photo_files(arguments.paths, report, report))]
    counts = unwrite_captions(photos, arguments.dry_run, report, arguments.images)
    return _end(counts, arguments.dry_run)


def _end(counts: Counter[str], is_dry_run: bool) -> int:
    """Report what was done, or print what would be; returns the exit code."""
    done = [f"{count:,} {name}" for name, count in counts.items() if count]
    tell = print if is_dry_run else report
    tell(", ".join(done) or "nothing to do")
    return 2 if counts["not written"] or counts["not changed"] else 0
