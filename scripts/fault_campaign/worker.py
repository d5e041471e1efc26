"""Does what cases ask, and says what became of each; in a process that may crash or hang.

A case is a line of JSON from standard input: a kind and its arguments. The answer is a line of JSON
with an `outcome`: `accepted`, `refused` (one sentence), `trace` or `lost`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from captioner.caption import load_model
from captioner.caption.caption_photos import Captioned, caption_photos, named_photos
from captioner.errors import UserError
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.read_sources import read_split
from captioner.translate import load_translator

Answer = tuple[str, str]


def photo(model: str, good: str, bad: str) -> Answer:
    """Caption a damaged photo between two good ones, which must be captioned."""
    found = list(caption_photos(load_model(model), named_photos([good, bad, good], 200)))
    if not all(isinstance(found[place], Captioned) for place in (0, 2)):
        return "lost", str(found)
    return "accepted" if isinstance(found[1], Captioned) else "refused", ""


def config(path: str) -> Answer:
    """Read a config."""
    read_any_recipe(path)
    return "accepted", ""


def data(format: str, annotations: str, images: str) -> Answer:
    """Read a data set."""
    split = "train" if format == "karpathy" else None
    read_split(format, annotations, images, split, "refuse")
    return "accepted", ""


def captioner_folder(folder: str, good: str, weights_are_damaged: bool) -> Answer:
    """Load a captioner and caption with it; weights that were damaged must be refused."""
    model = load_model(folder)
    model.caption([good])
    return ("lost", "damaged weights") if weights_are_damaged else ("accepted", "")


def translator_folder(folder: str, weights_are_damaged: bool) -> Answer:
    """Load a translator and translate with it; weights that were damaged must be refused."""
    load_translator(folder).translate(["a dog"])
    return ("lost", "damaged weights") if weights_are_damaged else ("accepted", "")


TASKS: dict[str, Callable[..., Answer]] = {
    task.__name__: task for task in (photo, config, data, captioner_folder, translator_folder)
}


def main() -> None:
    """Answer cases until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Libraries print.
    for line in sys.stdin:
        case = json.loads(line)
        try:
            outcome, text = TASKS[case["kind"]](*case["arguments"])
        except UserError as error:
            is_sentence = str(error).strip() and "\n" not in str(error)
            outcome, text = ("refused" if is_sentence else "trace"), str(error)
        except Exception:
            outcome, text = "trace", traceback.format_exc()
        answers.write(json.dumps({"outcome": outcome, "text": text}) + "\n")
        answers.flush()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main()
