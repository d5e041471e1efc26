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
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import FailFast, with_config
from typing_extensions import NotRequired, TypedDict

from captioner.data.example import Collector, Example, Problems, id_matcher
from captioner.data.table import SUFFIXES, TRAIN, VALIDATION, drawn_splits, photo_folder, read_table
from captioner.errors import UserError
from captioner.files import read_json, read_text
from captioner.schema import RECORD, Id, Instance, Records, Text, from_mapping

_FOLDER = re.compile(r"(?:train|val|test)20\d\d")
_SPLIT = re.compile(r"(?<![a-z])(?:train|val|test)(?:20\d\d)?(?![a-z0-9])")

_LINE = re.compile(r"(?P<image>[^\t]+)#(?P<number>[0-9]{1,9})\t(?P<caption>.*)", re.DOTALL)

_LISTS = {
    "train": ("Flickr_8k.trainImages.txt", "train.txt"),
    "val": ("Flickr_8k.devImages.txt", "val.txt"),
    "test": ("Flickr_8k.testImages.txt", "test.txt"),
}


def format_of(path: Path) -> str | None:
    """The format of captions by their name and fields: coco, karpathy or table; None of others."""
    suffix = path.suffix.lower()
    if suffix != ".json" or path.is_dir():
        return "table" if suffix in SUFFIXES or path.is_dir() else None
    with suppress(UserError):  # Its reader says what is wrong.
        document = read_json(path)
        if isinstance(document, list):
            return "table"
        if isinstance(document, dict) and isinstance(document.get("images"), list):
            return "coco" if "annotations" in document else "karpathy"
    return None


def read_examples(
    format: str | None,
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    split: str | os.PathLike[str] | None = None,
    problems: Problems | None = None,
    check_files: bool = True,
) -> list[Example]:
    """Read one split of a data set on disk; it has one photo at least.

    format: None for that of `format_of`, else coco.
    split: `train` and `val` of a file of COCO whose name says no split are drawn as a table's.
    images: the folder of the photos; by default that of the annotations.
    problems: counts those of the records, and says whether they are refused (default) or skipped.
    check_files: whether the photos must exist.
    """
    file = Path(annotations)
    folder = photo_folder(file, images)
    format = format or format_of(file) or "coco"
    collector = Collector(Problems() if problems is None else problems, check_files)
    has_no_split = format == "coco" and file.is_file() and not _SPLIT.search(file.name)
    is_drawn = has_no_split and split in (TRAIN, VALIDATION) and collector.problems.draws_splits
    wanted = None if split is None or is_drawn else os.fspath(split)
    READERS[format](file, folder, wanted, collector)
    examples = collector.examples()
    if not is_drawn:
        return examples
    train, validation = drawn_splits(examples, folder, collector.problems)
    return train if split == TRAIN else validation


@with_config(RECORD)
class _Image(TypedDict):
    id: Id
    file_name: Text


@with_config(RECORD)
class _Caption(TypedDict):
    id: Id
    image_id: Id
    caption: Text


class _CaptionFile(Records):
    images: Annotated[list[_Image], FailFast()]
    annotations: Annotated[list[_Caption], FailFast()]


def read_coco(annotations: Path, images: Path, split: str | None, collector: Collector) -> None:
    """Read a caption file of COCO.

    annotations: the JSON file, or a folder with `captions_SPLIT.json` or
        `annotations/captions_SPLIT.json`.
    images: the folder of the photos, or of `train2014`, `val2017` and so on.
    split: train, val or test, or with the year, train2014; required for a folder of annotations.
        A file is one split, and read whole: its name may not say another.

    `image_id` is COCO's id: a number or text (see `id_matcher`).
    """
    file = _annotation_file(annotations, split)
    where = collector.problems.source = f"caption file {file}"
    if split is not None and not _SPLIT.fullmatch(split):
        raise UserError(f"{where}: a split of COCO is train, val or test, not {split!r}")
    named = _SPLIT.findall(file.name)
    if split and named and not any(n.startswith(split) or split.startswith(n) for n in named):
        raise UserError(f"{where} is of the split {named[0]!r}, not {split!r}")
    document = _read_document(_CaptionFile, file, "caption file", "coco")
    folder_of = cache(lambda name: _image_folder(images, name, split, *named))
    for image in document.images:
        found = _FOLDER.search(image["file_name"])
        path = folder_of(found and found.group()) / image["file_name"]
        collector.add_image(image["id"], path, f"image {image['id']}")
    listed = [image["id"] for image in document.images]
    matching = id_matcher(listed, [entry["image_id"] for entry in document.annotations])
    for entry in document.annotations:
        record = f"annotation {entry['id']}"
        collector.add_caption(matching(entry["image_id"]), entry["caption"], record)


def _annotation_file(annotations: Path, split: str | None) -> Path:
    if not annotations.is_dir():
        return annotations
    if split is None:
        raise UserError(f"{annotations} is a folder, so the split to read from it must be named")
    return _first_file([annotations, annotations / "annotations"], [f"captions_{split}.json"])


@with_config(RECORD)
class _Sentence(TypedDict):
    raw: Text
    tokens: NotRequired[list[Text]]


@with_config(RECORD)
class _Entry(TypedDict):
    filename: Text
    split: Text
    sentences: list[_Sentence]
    cocoid: NotRequired[Id]
    filepath: NotRequired[Text]


class _SplitFile(Records):
    images: Annotated[list[_Entry], FailFast()]


def read_karpathy(annotations: Path, images: Path, split: str | None, collector: Collector) -> None:
    """Read one of Karpathy's splits.

    annotations: the JSON file.
    images: the folder of the photos or, for COCO, of `train2014` and `val2014`.
    split: train, val, test or, for COCO, restval; None: the whole file. "train" includes restval,
        the rest of COCO's validation set: 113,287 photos with it, 82,783 without.

    `image_id` is COCO's id, else the file name; the file's own tokens are kept.
    """
    where = collector.problems.source = f"split file {annotations}"
    entries = _read_document(_SplitFile, annotations, "split file", "karpathy").images
    present = {entry["split"] for entry in entries}
    if split is not None and split not in present:
        raise UserError(f"{where} has no split {split!r}, only {', '.join(sorted(present))}")
    wanted = {"train", "restval"} if split == "train" else {split}
    folder_of = cache(lambda name: _image_folder(images, name))
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
                collector.add_caption(image_id, sentence["raw"], name, sentence.get("tokens"))


def read_flickr8k(annotations: Path, images: Path, split: str | None, collector: Collector) -> None:
    """Read a token file: lines of `name.jpg#N`, a tab and a caption.

    split: a file with one image name a line; or train, val or test, with the list beside the token
        file (`Flickr_8k.trainImages.txt` or `train.txt`); None: every image.

    `image_id` is the file name; images come in the order of the list, else of the token file. The
    original Flickr8k file has captions of `2258277193_586949ec62.jpg.1`, a photo that does not
    exist and is in no split.
    """
    problems = collector.problems
    problems.source = f"token file {annotations}"
    lines = _lines(read_text(annotations, "token file"))
    if lines and not any(_LINE.fullmatch(line) for _, line in lines):
        wanted = "no line of NAME#NUMBER, a tab and a caption"
        raise UserError(f"{problems.source} has {wanted}{_or_other_format('flickr8k')}")
    listed = None if split is None else _list_file(annotations, split)
    if listed is not None:
        problems.source += f" with split list {listed}"
        for number, name in _lines(read_text(listed, "split list")):
            record = f"image {name.strip()} (line {number} of {listed})"
            collector.add_image(name.strip(), images / name.strip(), record)
    for number, line in lines:
        match = _LINE.fullmatch(line)
        if match is None or not match["image"].strip():
            what = f"line {number} is not NAME#NUMBER, a tab and a caption"
            problems.add("ill-formed line", what)
            continue
        name = match["image"].strip()
        if listed is None and name not in collector:
            collector.add_image(name, images / name, f"image {name} (line {number})")
        if name in collector:
            record = f"caption {name}#{match['number']} (line {number})"
            collector.add_caption(name, match["caption"], record)


def _list_file(token_file: Path, split: str) -> Path:
    names = _LISTS.get(split)
    return Path(split) if names is None else _first_file([token_file.parent], names)


def _first_file(folders: Sequence[Path], names: Sequence[str]) -> Path:
    candidates = [folder / name for folder in folders for name in names]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(f"there is neither {' nor '.join(map(str, candidates))}")


def _lines(text: str) -> list[tuple[int, str]]:
    # Not splitlines, which also splits a caption at U+2028 and the like.
    numbered = enumerate(text.split("\n"), start=1)
    return [(number, line) for number, line in numbered if line.strip()]


def _read_document(kind: type[Instance], path: Path, what: str, format: str) -> Instance:
    """Read a JSON file of a format. what: the file's role, for messages."""
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


READERS: dict[str, Callable[[Path, Path, str | None, Collector], None]] = {
    "coco": read_coco,
    "karpathy": read_karpathy,
    "flickr8k": read_flickr8k,
    "table": read_table,
}
"""By format; each takes annotations, images and split, and fills a `Collector`."""
