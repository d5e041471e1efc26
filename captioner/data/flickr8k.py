"""The original token files of Flickr8k and Flickr30k.

Hodosh, Young and Hockenmaier 2013, *Framing Image Description as a Ranking Task*, and Young et al.
2014, *From image descriptions to visual denotations*; the files are `Flickr8k.token.txt` with the
lists `Flickr_8k.trainImages.txt`, `.devImages` and `.testImages`, and `results_20130124.token`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from captioner.data.collector import CaptionCollector
from captioner.data.records import CaptionSet
from captioner.data.source_problems import OnProblem, or_other_format
from captioner.errors import UserError
from captioner.files import read_text

_LINE = re.compile(r"(?P<image>[^\t]+)#(?P<number>[0-9]{1,9})\t(?P<caption>.*)", re.DOTALL)

_LISTS = {
    "train": ("Flickr_8k.trainImages.txt", "train.txt"),
    "val": ("Flickr_8k.devImages.txt", "val.txt"),
    "test": ("Flickr_8k.testImages.txt", "test.txt"),
}


def read_flickr8k(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    split: str | os.PathLike[str] | None = None,
    on_problem: OnProblem = "refuse",
    check_files: bool = True,
) -> CaptionSet:
    """Read a token file: lines of `name.jpg#N`, a tab and a caption.

    split: a file with one image name a line; or train, val or test, with the list beside the token
        file (`Flickr_8k.trainImages.txt` or `train.txt`); None: every image.
    on_problem, check_files: see `CaptionCollector`. The original Flickr8k file has captions of
        `2258277193_586949ec62.jpg.1`, a photo that does not exist and is in no split.

    `image_id` is the file name; images come in the order of the list, else of the token file.
    Raises `UserError` for a missing file, and as `CaptionCollector.finish` does.
    """
    file, folder = Path(annotations), Path(images)
    lines = _lines(read_text(file, "token file"))
    if lines and not any(_LINE.fullmatch(line) for _, line in lines):
        sentence = f"token file {file} has no line of NAME#NUMBER, a tab and a caption"
        raise UserError(sentence + or_other_format("flickr8k"))
    listed = None if split is None else _list_file(file, split)
    files = f"token file {file}" + ("" if listed is None else f" with split list {listed}")
    collector = CaptionCollector(files, on_problem, check_files)
    if listed is not None:
        for number, name in _lines(read_text(listed, "split list")):
            record = f"image {name.strip()} (line {number} of {listed})"
            collector.add_image(name.strip(), folder / name.strip(), record)
    for number, line in lines:
        match = _LINE.fullmatch(line)
        if match is None or not match["image"].strip():
            sentence = f"line {number} is not NAME#NUMBER, a tab and a caption"
            collector.problems.add("ill-formed line", sentence)
            continue
        name = match["image"].strip()
        if listed is None and not collector.has_image(name):
            collector.add_image(name, folder / name, f"image {name} (line {number})")
        if collector.has_image(name):
            key = (name, int(match["number"]))
            record = f"caption {name}#{match['number']} (line {number})"
            collector.add_caption(name, match["caption"], record, key=key)
    return collector.finish()


def _list_file(token_file: Path, split: str | os.PathLike[str]) -> Path:
    names = _LISTS.get(os.fspath(split))
    if names is None:
        return Path(split)
    for name in names:
        if (token_file.parent / name).is_file():
            return token_file.parent / name
    raise UserError(
        f"the list of the split {os.fspath(split)!r} of {token_file} is not beside it: "
        f"neither {names[0]} nor {names[1]}"
    )


def _lines(text: str) -> list[tuple[int, str]]:
    # Not splitlines, which also splits a caption at U+2028 and the like.
    numbered = enumerate(text.split("\n"), start=1)
    return [(number, line) for number, line in numbered if line.strip()]
