"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from captioner.errors import UserError

if TYPE_CHECKING:
    from captioner.decoding import SearchOptions

SAMPLING = ("temperature", "top_k", "top_p", "seed")
"""The options that say how to draw; None where not given."""

SEARCH = (
    *("beam", "n_best", "length_normalisation", "minimum_length", "maximum_length"),
    *("block_ngrams", "repeat_distance", "sample", *SAMPLING),
)
"""All options that `add_search` adds; None where not given."""

TRANSLATION_SEARCH = ("coverage_penalty", "copy_unknown")
"""All options that `add_translation_search` adds; None where not given."""

Commands = Any  # What argparse calls _SubParsersAction, a name it keeps to itself.


def add_parser(
    commands: Commands, name: str, summary: str, description: str
) -> argparse.ArgumentParser:
    """A command's own parser, with its description printed as it is written."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add --device."""
    parser.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda, cuda:N, mps, or auto for the best there is (default: %(default)s)",
    )


def add_search(
    parser: argparse.ArgumentParser,
    what: str = "captions",
    of: str = "photo",
    unit: str = "words",
) -> argparse._ArgumentGroup:
    """Add the options of the search; those not given are the model's own. Gives their group.

    what: what is searched for, in the plural. of: what each is of. unit: what it is made of.
    """
    search = parser.add_argument_group("search (defaults: the model's own)")
    search.add_argument("--beam", type=int, help="beam size; 1 is greedy search")
    search.add_argument("--n-best", type=int, help=f"{what} given for each {of}")
    search.add_argument(
        "--length-normalisation",
        type=float,
        metavar="ALPHA",
        help="divide log-probabilities by ((5 + length) / 6) ** ALPHA; 0 for none",
    )
    search.add_argument(
        "--minimum-length", type=int, metavar="N", help=f"no {what[:-1]} has fewer {unit}"
    )
    search.add_argument(
        "--maximum-length",
        type=int,
        metavar="N",
        help=f"{what} of more {unit} are cut off there",
    )
    search.add_argument(
        "--block-ngrams", type=int, metavar="N", help=f"no N {unit} in a row twice; 0 for no rule"
    )
    search.add_argument(
        "--repeat-distance",
        type=int,
        metavar="N",
        help=f"nothing again within N {unit}, but for a caption's function words; 0 for no rule",
    )
    search.add_argument(
        "--sample", action="store_true", default=None, help=f"draw {what} instead of searching"
    )
    search.add_argument("--temperature", type=float, help="of --sample: below 1 is safer")
    search.add_argument("--top-k", type=int, help=f"of --sample: the K likeliest {unit} only")
    search.add_argument("--top-p", type=float, help="of --sample: the likeliest P of the mass only")
    search.add_argument("--seed", type=int, help="of --sample")
    return search


def add_translation_search(search: argparse._ArgumentGroup) -> None:
    """Add the options of the search that only translations have to the group of `add_search`."""
    search.add_argument(
        "--coverage-penalty",
        type=float,
        metavar="BETA",
        help="of translations: rank lower what did not look at all of its source (GNMT); 0 for "
        "none",
    )
    search.add_argument(
        "--copy-unknown",
        action="store_true",
        default=None,
        help="of translations: put the source's word where the model knows none",
    )


def search_options(arguments: argparse.Namespace, own: SearchOptions) -> SearchOptions:
    """The model's own search options with those of the command line over them.

    Asking for more captions than the model's own beam holds widens the beam.
    Raises `UserError` for values out of range, and for options of sampling without --sample.
    """
    from dataclasses import fields, replace

    given = {
        field.name: getattr(arguments, field.name)
        for field in fields(own)
        if getattr(arguments, field.name) is not None
    }
    if not given.get("sample", own.sample):
        refuse(arguments, SAMPLING, "without --sample")
    if "n_best" in given and "beam" not in given:
        given["beam"] = max(own.beam, given["n_best"])
    return replace(own, **given)


def refuse(arguments: argparse.Namespace, names: Sequence[str], where: str) -> None:
    """Raise `UserError` for the first of these options that was given: it means nothing there."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} has no meaning {where}")
