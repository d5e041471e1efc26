"""Readers of captioned photos: COCO's caption files, Karpathy's splits, Flickr's token files.

- COCO, 2014 and 2017 (Chen et al. 2015, *Microsoft COCO Captions: Data Collection and Evaluation
  Server*): `annotations/captions_{train,val}{2014,2017}.json`, photos in `train2014` and so on.
- Karpathy's splits of COCO, Flickr8k and Flickr30k (Karpathy and Fei-Fei 2015, *Deep
  Visual-Semantic Alignments for Generating Image Descriptions*): `dataset_coco.json` and so on.
- Flickr8k and Flickr30k (Hodosh, Young and Hockenmaier 2013, *Framing Image Description as a
  Ranking Task*; Young et al. 2014, *From image descriptions to visual denotations*):
  `Flickr8k.token.txt` with `Flickr_8k.trainImages.txt` and so on; `results_20130124.token`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import FailFast, with_config
from typing_extensions import NotRequired, TypedDict

from captioner.data.example import Collector, Example, Problems
from captioner.data.table import read_table
from captioner.errors import UserError
from captioner.files import read_json, read_text
from captioner.schema import RECORD, Instance, Records, Text, from_mapping

_FOLDER = re.compile(r"(?:train|val|test)20\d\d")
_SPLIT = re.compile(r"(?<![a-z])(?:train|val|test)(?:20\d\d)?(?![a-z0-9])")

_LINE = re.compile(r"(?P<image>[^\t]+)#(?P<number>[0-9]{1,9})\t(?P<caption>.*)", re.DOTALL)

_LISTS = {
    "train": ("Flickr_8k.trainImages.txt", "train.txt"),
    "val": ("Flickr_8k.devImages.txt", "val.txt"),
    "test": ("Flickr_8k.testImages.txt", "test.txt"),
}


def read_examples(
    format: str,
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    split: str | os.PathLike[str] | None = None,
    problems: Problems | None = None,
    check_files: bool = True,
) -> list[Example]:
    """Read one split of a data set on disk; it has one photo at least.

    images: the folder of the photos; optional for a table and where photos need not exist.
    problems: counts those of the records, and says whether they are refused (default) or skipped.
    check_files: whether the photos must exist.
    """
    if images is None and format != "table":
        if check_files:
            raise UserError(f"data format {format!r} needs the folder of the photos")
        images = ""
    problems = Problems() if problems is None else problems
    return list(READERS[format](annotations, images, split, problems, check_files))


@with_config(RECORD)
class _Image(TypedDict):
    id: int
    file_name: Text


@with_config(RECORD)
class _Caption(TypedDict):
    id: int
    image_id: int
    caption: Text


class _CaptionFile(Records):
    images: Annotated[list[_Image], FailFast()]
    annotations: Annotated[list[_Caption], FailFast()]


def read_coco(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    split: str | None,
    problems: Problems,
    check_files: bool = True,
) -> Iterator[Example]:
    """Read a caption file of COCO.

    annotations: the JSON file, or a folder with `captions_SPLIT.json` or
        `annotations/captions_SPLIT.json`.
    images: the folder of the photos, or of `train2014`, `val2017` and so on.
    split: train, val or test, or with the year, train2014; required for a folder of annotations.
        A file is one split, and read whole: its name may not say another.

    `image_id` is COCO's number.
    """
    file = _annotation_file(Path(annotations), split)
    where = f"caption file {file}"
    if split is not None and not _SPLIT.fullmatch(split):
        raise UserError(f"{where}: a split of COCO is train, val or test, not {split!r}")
    named = _SPLIT.findall(file.name)
    if split and named and not any(n.startswith(split) or split.startswith(n) for n in named):
        raise UserError(f"{where} is of the split {named[0]!r}, not {split!r}")
    document = _read_document(_CaptionFile, file, "caption file", "coco")
    folder_of = cache(lambda name: _image_folder(Path(images), name, split, *named))
    collector = Collector(problems, where, check_files)
    for image in document.images:
        found = _FOLDER.search(image["file_name"])
        path = folder_of(found.group() if found else None) / image["file_name"]
        collector.add_image(image["id"], path, f"image {image['id']}")
    for entry in document.annotations:
        record = f"annotation {entry['id']}"
        collector.add_caption(entry["image_id"], entry["caption"], record, key=entry["id"])
    yield from collector.examples()


def _annotation_file(annotations: Path, split: str | None) -> Path:
    if not annotations.is_dir():
        return annotations
    if split is None:
        raise UserError(f"{annotations} is a folder, so the split to read from it must be named")
    name = f"captions_{split}.json"
    candidates = [annotations / name, annotations / "annotations" / name]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(f"there is neither {candidates[0]} nor {candidates[1]}")


@with_config(RECORD)
class _Sentence(TypedDict):
    raw: Text
    tokens: NotRequired[list[Text]]


@with_config(RECORD)
class _Entry(TypedDict):
    filename: Text
    split: Text
    sentences: list[_Sentence]
    cocoid: NotRequired[int]
    filepath: NotRequired[Text]


class _SplitFile(Records):
    images: Annotated[list[_Entry], FailFast()]


def read_karpathy(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    split: str | None,
    problems: Problems,
    check_files: bool = True,
) -> Iterator[Example]:
    """Read one of Karpathy's splits.

    annotations: the JSON file.
    images: the folder of the photos or, for COCO, of `train2014` and `val2014`.
    split: train, val, test or, for COCO, restval; None: the whole file. "train" includes restval,
        the rest of COCO's validation set: 113,287 photos with it, 82,783 without.

    `image_id` is COCO's number, else the file name; the file's own tokens are kept.
    """
    where = f"split file {annotations}"
    entries = _read_document(_SplitFile, annotations, "split file", "karpathy").images
    present = {entry["split"] for entry in entries}
    if split is not None and split not in present:
        raise UserError(f"{where} has no split {split!r}, only {', '.join(sorted(present))}")
    wanted = {"train", "restval"} if split == "train" else {split}
    folder_of = cache(lambda name: _image_folder(Path(images), name))
    collector = Collector(problems, where, check_files)
    for number, entry in enumerate(entries):
        file_name = entry["filename"]
        image_id = entry.get("cocoid", file_name)
        record = f"image {file_name} (record {number})"
        if not collector.is_in_split(image_id, entry["split"], record):
            continue
        if split is not None and entry["split"] not in wanted:
            continue
        path = folder_of(entry.get("filepath")) / file_name
        if collector.add_image(image_id, path, record):
            for place, sentence in enumerate(entry["sentences"]):
                name = f"sentence {place} of {record}"
                collector.add_caption(image_id, sentence["raw"], name, None, sentence.get("tokens"))
    yield from collector.examples()


def read_flickr8k(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    split: str | os.PathLike[str] | None,
    problems: Problems,
    check_files: bool = True,
) -> Iterator[Example]:
    """Read a token file: lines of `name.jpg#N`, a tab and a caption.

    split: a file with one image name a line; or train, val or test, with the list beside the token
        file (`Flickr_8k.trainImages.txt` or `train.txt`); None: every image.

    `image_id` is the file name; images come in the order of the list, else of the token file. The
    original Flickr8k file has captions of `2258277193_586949ec62.jpg.1`, a photo that does not
    exist and is in no split.
    """
    file, folder = Path(annotations), Path(images)
    lines = _lines(read_text(file, "token file"))
    if lines and not any(_LINE.fullmatch(line) for _, line in lines):
        sentence = f"token file {file} has no line of NAME#NUMBER, a tab and a caption"
        raise UserError(sentence + _or_other_format("flickr8k"))
    listed = None if split is None else _list_file(file, split)
    files = f"token file {file}" + ("" if listed is None else f" with split list {listed}")
    collector = Collector(problems, files, check_files)
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
        if listed is None and name not in collector:
            collector.add_image(name, folder / name, f"image {name} (line {number})")
        if name in collector:
            key = (name, int(match["number"]))
            record = f"caption {name}#{match['number']} (line {number})"
            collector.add_caption(name, match["caption"], record, key=key)
    yield from collector.examples()


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


def _read_document(
    kind: type[Instance], path: str | os.PathLike[str], what: str, format: str
) -> Instance:
    """Read a JSON file of a format. what: the file's role, for messages. Raises `UserError`."""
    try:
        return from_mapping(kind, read_json(path, what), f"{what} {path}")
    except UserError as error:
        advice = _or_other_format(format) if os.path.isfile(path) else ""
        raise UserError(f"{error}{advice}") from None


def _image_folder(images: Path, *names: str | None) -> Path:
    """The first existing sub-folder of `images` with one of these names, else `images`."""
    for name in names:
        if name and os.path.isdir(images / name):
            return images / name
    return images


def _or_other_format(format: str) -> str:
    """The end of a message about a file that may be of another format than this one."""
    return f"; if it is not {format}, name its format (--format, in training data.format)"


READERS: dict[str, Callable[..., Iterator[Example]]] = {
    "coco": read_coco,
    "karpathy": read_karpathy,
    "flickr8k": read_flickr8k,
    "table": read_table,
}
"""By format; all take the arguments of `read_examples` behind `format`, in its order."""
